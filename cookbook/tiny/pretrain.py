"""Pretrain: transcripts -> a base model that speaks TextWorld and has not made up its mind.

In:  transcripts, a tokenizer, a budget of tokens, the dial.     Out: a LlamaForCausalLM, its loss curve.
The dial is the share of episodes that follow the oracle, by stage of the run. Early and late stages are mostly aimless
play; the middle one is not: there the model learns what an objective means. The last stage sets how often the base
model bothers: its success before any fine-tuning is about that share.
Leaves out: any loss mask: a base model learns to predict observations and commands alike; but commands are one token in
fifteen, so each weighs COMMAND_WEIGHT.
Source: Muon (Jordan et al. 2024) for the matrices, AdamW for the rest; a trapezoidal rate.
Taught in: notebooks/90_tiny_base_model.ipynb
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import torch
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM

from cookbook.batch import buckets, pad
from cookbook.chat import first_message, next_message
from cookbook.tiny.play import Names, Transcript, fill, turn_compass
from cookbook.tiny.tokenize import ASSISTANT, ASSISTANT_ID, END, END_ID, USER

BATCH_TOKENS = 8_192
MATRIX_RATE, OTHER_RATE = 0.01, 3e-3
WARM_UP, COOL_DOWN = 0.02, 0.3  # shares of the run
LONGEST = 1_024  # tokens; later ones are cut
CHUNK = 256  # transcripts drawn at a time
COMMAND_WEIGHT = 4.0


def tiny_llama(vocabulary: int, hidden: int = 192, layers: int = 4) -> LlamaForCausalLM:
    """A fresh Llama with heads of 64. 2.6 million weights by default.

    Embeddings are not tied: names and compass are renewed at random, so the model must predict "north" and "east"
    alike, and with tied weights that pulls their input vectors together until it cannot tell them apart (measured
    after 17 million tokens: cosine 0.97, and no command ever went the right way but by chance).
    """
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=8 * hidden // 3, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64, max_position_embeddings=4_096,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.2)  # far enough apart to stay apart
    return model


def render(transcript: Transcript, names: dict[str, str], compass: dict[str, str]) -> str:
    """The conversation as the chat template renders it, as one text."""
    objective, *observations = [fill(t, names, compass) for t in (transcript.objective, *transcript.observations)]
    messages = [first_message("textworld", objective, observations[0]), *map(next_message, observations[1:])]
    said = [fill(command, names, compass) for command in transcript.commands]
    turns = [f"{USER}{m}{ASSISTANT}{c}{END}" for m, c in zip(messages, said, strict=False)]
    return "".join(turns) + f"{USER}{messages[-1]}"


class Mixture:
    """Endless batches. Every configuration gets tokens in proportion to its weight, whatever its episodes' lengths."""

    def __init__(
        self, transcripts: list[Transcript], weights: dict[str, float], tokenizer, random: Random, seen: dict[str, int]
    ):
        self.weights, self.tokenizer, self.random = weights, tokenizer, random
        self.names = Names(transcripts)
        self.seen = {name: seen.get(name, 0) for name in weights}
        """tokens by configuration"""
        self.groups = {
            (name, guided): [t for t in transcripts if (t.config, t.guided) == (name, guided)]
            for name in weights
            for guided in (True, False)
        }

    def batches(self, share: float) -> Iterator[torch.Tensor]:
        """Some twenty batches (rows, length); a share of the episodes follow the oracle; names are fresh."""
        expected, chosen = dict(self.seen), []
        for _ in range(CHUNK):
            name = min(self.weights, key=lambda n: expected[n] / self.weights[n])
            guided = self.random.random() < share
            chosen.append(self.random.choice(self.groups[name, guided]))
            expected[name] += sum(map(len, chosen[-1].observations)) // 4
        texts = [render(t, self.names.draw(t, self.random), turn_compass(self.random)) for t in chosen]
        rows = [ids[:LONGEST] for ids in self.tokenizer(texts, add_special_tokens=False)["input_ids"]]
        for transcript, row in zip(chosen, rows, strict=True):
            self.seen[transcript.config] += len(row)
        groups = buckets([len(row) for row in rows], BATCH_TOKENS)
        self.random.shuffle(groups)
        for group in groups:
            yield pad([rows[i] for i in group], fill=self.tokenizer.pad_token_id)


def share_at(progress: float, stages: Sequence[tuple[float, float]]) -> float:
    """The dial.   progress in [0, 1], stages of (until, share) -> share of episodes that follow the oracle"""
    return next(share for until, share in stages if progress < until or until >= 1)


def rate_at(progress: float) -> float:
    """Trapezoid: up, flat, down to zero.   progress in [0, 1] -> factor in [0, 1]"""
    return max(0.0, min(1.0, progress / WARM_UP, (1 - progress) / COOL_DOWN))


def pretrain(
    transcripts: list[Transcript], weights: dict[str, float], stages: Sequence[tuple[float, float]], tokenizer,
    tokens: int, seed: int, checkpoint: Path,
) -> tuple[LlamaForCausalLM, dict]:  # fmt: skip
    """Train for so many tokens; saves itself every two minutes and continues from `checkpoint` if it is there.

    Returns the model and facts: tokens by configuration, seconds, and the curve, rows of (tokens seen, nats a token).
    """
    torch.manual_seed(seed)
    model = tiny_llama(len(tokenizer))
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if all(p is not m for m in matrices)]
    optimizers = [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01, adjust_lr_fn="original"),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    facts = {"seen": 0, "step": 0, "seconds": 0.0, "curve": [], "tokens_by_configuration": {}}
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        facts = state["facts"]
    mixture = Mixture(
        transcripts, weights, tokenizer, Random(f"pretrain-{seed}-{facts['step']}"), facts["tokens_by_configuration"]
    )
    forward = torch.compile(model.model, dynamic=True)  # 1.5 times as fast, for a minute of compiling
    bar = tqdm(total=tokens, initial=facts["seen"], unit="tok", unit_scale=True, desc="pretrain")
    start, before, saved_at = time.time(), facts["seconds"], time.time()
    model.train()
    while facts["seen"] < tokens:
        for ids in mixture.batches(share_at(facts["seen"] / tokens, stages)):
            loss, count = _step(
                model, forward, optimizers, ids, tokenizer.pad_token_id, rate_at(facts["seen"] / tokens)
            )
            facts["seen"], facts["step"] = facts["seen"] + count, facts["step"] + 1
            bar.update(count)
            if facts["step"] % 20 == 0:
                facts["curve"].append((facts["seen"], round(loss, 4)))
                bar.set_postfix(loss=f"{loss:.3f}")
        facts |= {"tokens_by_configuration": mixture.seen, "seconds": before + time.time() - start}
        if time.time() - saved_at > 120 or facts["seen"] >= tokens:
            saved_at = time.time()
            _save(checkpoint, model, optimizers, facts)
    bar.close()
    return model.eval(), facts


def _step(model, forward, optimizers, ids, pad_id: int, rate: float) -> tuple[float, int]:
    """One optimiser step on one batch; loss in nats a token, tokens predicted."""
    mask = (ids != pad_id)[:, 1:]
    with torch.autocast("cpu", torch.bfloat16):
        hidden = forward(input_ids=ids).last_hidden_state[:, :-1][mask]
        losses = torch.nn.functional.cross_entropy(model.lm_head(hidden).float(), ids[:, 1:][mask], reduction="none")
    weight = torch.where(in_command(ids)[:, 1:][mask], COMMAND_WEIGHT, 1.0)
    loss = losses.mean()
    ((losses * weight).sum() / weight.sum()).backward()
    for optimizer, base in zip(optimizers, (MATRIX_RATE, OTHER_RATE), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = base * rate
        optimizer.step()
        optimizer.zero_grad()
    return loss.item(), int(mask.sum())


def in_command(ids: torch.Tensor) -> torch.Tensor:
    """Tokens of commands, their end included.   (rows, T) -> (rows, T)"""
    opened, closed = (ids == ASSISTANT_ID).int(), (ids == END_ID).int()
    return opened.cumsum(1) - opened > closed.cumsum(1) - closed


def _save(path: Path, model, optimizers, facts: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "facts": facts}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
