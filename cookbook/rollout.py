"""Rollout: tasks + policy -> episodes, all episodes of a batch side by side, the KV cache kept across turns.

In:  a sampler (a causal LM in eval mode), a chat, tasks.     Out: list[Episode], one a task, in order.
Leaves out: rewards other than the environment's own; see rewards.py.
Taught in: notebooks/00_tour.ipynb
"""

import inspect
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from cookbook.batch import pad
from cookbook.chat import Chat
from cookbook.envs.pool import EnvError, EnvPool
from cookbook.episode import TOLD, Episode
from cookbook.policy.cache import RaggedCache
from cookbook.tasks import Task


@dataclass(frozen=True)
class Sampling:
    """How commands are drawn. No top-k, no top-p, the end token never suppressed: what is sampled is what is scored."""

    temperature: float = 1.0
    """logits are divided by it; the same number is used wherever log-probabilities are computed"""
    greedy: bool = False
    """take the likeliest token; log-probabilities are still those at `temperature`"""
    turn_tokens: int = 24
    """tokens a turn, end of turn included"""
    episode_tokens: int = 1_024
    """tokens an episode; the episode ends with context_limit before it would exceed this"""

    def __post_init__(self):
        if not isinstance(self.temperature, int | float) or not 0 < self.temperature <= 10:
            raise ValueError(
                f"temperature={self.temperature!r}: a number above 0, at most 10; use greedy=True for argmax"
            )
        for name in ("turn_tokens", "episode_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r}: a whole number of at least 1")


class Backend(Protocol):
    """What writes the next turn of many conversations at once."""

    def start(self, rows: int) -> None:
        """Forget everything; so many conversations follow."""

    def write(
        self, chunks: list[list[int]], uniforms: np.ndarray | None, caps: list[int]
    ) -> list[tuple[list[int], list[float]]]:
        """Each conversation is told its chunk and answers with token ids and their log-probabilities."""

    def keep(self, rows: list[int]) -> None:
        """Only these conversations go on, in this order."""


class HFBackend:
    """Transformers on CPU or GPU, with a cache that lives across turns: only new tokens are ever computed."""

    def __init__(self, model, stop_ids: set[int], sampling: Sampling):
        self.model, self.stop_ids, self.sampling = model, stop_ids, sampling
        names = inspect.signature(model.base_model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def start(self, rows: int) -> None:
        """Empty cache for so many rows."""
        if self.model.training:
            raise RuntimeError("the model is in train mode while sampling: call model.eval() first")
        self._cache = RaggedCache(self.model.config.num_hidden_layers, rows, self.model.device)
        self._last: list[list[int]] = [[] for _ in range(rows)]  # sampled, but not in the cache yet

    def keep(self, rows: list[int]) -> None:
        """Drop the other rows from the cache."""
        self._cache.keep(self._tensor(np.asarray(rows)))
        self._last = [self._last[row] for row in rows]

    @torch.inference_mode()
    def write(self, chunks, uniforms, caps):
        """Prefill the chunks, then sample until every row has ended its turn or met its cap."""
        chunks = [last + chunk for last, chunk in zip(self._last, chunks, strict=True)]
        lengths = torch.tensor([len(chunk) for chunk in chunks], device=self.model.device)
        logits = self._forward(pad(chunks).to(self.model.device), lengths, read_at=lengths - 1)
        turns: list[tuple[list[int], list[float]]] = [([], []) for _ in chunks]
        rows = np.arange(len(chunks))  # those in the cache's focus
        writing = np.ones(len(chunks), dtype=bool)
        for step in range(max(caps)):
            ids, logprobs = self._sample(logits, None if uniforms is None else uniforms[rows, step])
            for row, token, logprob in zip(rows, ids.tolist(), logprobs.tolist(), strict=True):
                if writing[row]:
                    turns[row][0].append(token)
                    turns[row][1].append(logprob)
                    writing[row] = token not in self.stop_ids and len(turns[row][0]) < caps[row]
            if not writing.any():
                break
            if 2 * writing[rows].sum() <= len(rows):
                ids, rows = ids[writing[rows]], rows[writing[rows]]
                self._cache.focus(self._tensor(rows))
            going = self._tensor(writing[rows]).long()
            logits = self._forward(self._tensor(ids)[:, None], going, read_at=going * 0)
        self._cache.focus(None)
        self._last = [turn[0][-1:] for turn in turns]
        return turns

    def _tensor(self, array: np.ndarray):
        return torch.as_tensor(array, device=self.model.device)

    def _forward(self, ids, chunk_lengths, read_at):
        """Run a chunk through the model; logits (rows, vocabulary) at one position a row."""
        place = self._cache.advance(ids.shape[1], chunk_lengths)
        rows = torch.arange(len(ids), device=ids.device)
        head = self.model.get_output_embeddings()
        hook = head.register_forward_pre_hook(lambda _, args: (args[0][rows, read_at],))
        try:
            return self.model(input_ids=ids, use_cache=True, **{self._cache_name: self._cache}, **place).logits
        finally:
            hook.remove()

    def _sample(self, logits, uniforms) -> tuple[np.ndarray, np.ndarray]:
        """One token a row by inverting the distribution function at a given uniform number, or the likeliest."""
        logprobs = (logits.float() / self.sampling.temperature).log_softmax(-1)
        if not torch.isfinite(logprobs.amax(-1)).all():
            raise FloatingPointError(
                "the model gave NaN logits while sampling: lower the learning rate or the KL bound"
            )
        if uniforms is None:
            chosen = logprobs.argmax(-1)
        else:
            cumulative = logprobs.double().exp().cumsum(-1)
            point = self._tensor(uniforms)[:, None] * cumulative[:, -1:]
            chosen = torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
        return chosen.cpu().numpy(), logprobs.gather(-1, chosen[:, None]).squeeze(-1).cpu().numpy()


@dataclass
class _Live:
    """An episode in the making."""

    index: int
    task: Task
    chunk: list[int] = field(default_factory=list)
    observation: str = ""
    tokens: list[int] = field(default_factory=list)
    turn_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    signals: dict[str, list[float]] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def tell(self, ids: list[int]) -> None:
        self.tokens += ids
        self.turn_ids += [TOLD] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def say(self, ids: list[int], logprobs: list[float], command: str) -> None:
        self.tokens += ids
        self.turn_ids += [len(self.commands)] * len(ids)
        self.logprobs += logprobs
        self.commands.append(command)
        self.observations.append(self.observation)

    def record(self, reward: float, signals: dict[str, float]) -> None:
        self.rewards.append(float(reward))
        for name, value in signals.items():
            self.signals.setdefault(name, []).append(float(value))

    def finish(self, end: str) -> Episode:
        turns = len(self.commands)
        if end == "env_error":  # the command that killed the environment was paid nothing
            self.rewards += [0.0] * (turns - len(self.rewards))
            for name, values in self.signals.items():
                if not name.endswith("_start"):
                    values += [-1.0] * (turns - len(values))
        return Episode(
            self.task, self.tokens, self.turn_ids, self.logprobs, self.rewards, self.commands, self.observations,
            "" if end == "env_error" else self.observation, end, self.signals, self.info,
        )  # fmt: skip


def rollout(
    backend: Backend,
    chat: Chat,
    tasks,
    sampling: Sampling,
    turn_limit: int,
    seed: tuple[int, ...] = (0,),
    env_options: dict | None = None,
    pool: EnvPool | None = None,
) -> list[Episode]:
    """Play every task once.

    seed: where randomness starts, for example (seed, iteration). Each episode draws from (*seed, episode, turn), so
        that dropping a row, resuming, or another batch size gives the same numbers.
    Raises RuntimeError when none of several environments could be started.
    Returns episodes in the order of the tasks; an environment that dies gives end="env_error".
    """
    tasks = list(tasks)
    if not tasks:
        return []
    done: dict[int, Episode] = {}
    own_pool = pool is None
    pool = pool or EnvPool(tasks[0].env, {"turn_limit": turn_limit, **(env_options or {})})
    try:
        live = _start(pool, tasks, chat, sampling, done)
        backend.start(len(live))
        turn = 0
        while live:
            turns = backend.write(
                [row.chunk for row in live],
                None if sampling.greedy else _uniforms(seed, [row.index for row in live], turn, sampling.turn_tokens),
                [min(sampling.turn_tokens, sampling.episode_tokens - len(row.tokens)) for row in live],
            )
            live = _advance(pool, live, turns, chat, sampling, backend, done)
            turn += 1
    finally:
        if own_pool:
            pool.close()
    return [done[i] for i in range(len(tasks))]


def _start(pool, tasks, chat, sampling, done) -> list[_Live]:
    live = []
    for index, (task, start) in enumerate(zip(tasks, pool.reset(tasks), strict=True)):
        row = _Live(index, task)
        if isinstance(start, EnvError):
            row.info["error"] = start.text
            done[index] = row.finish("env_error")
            continue
        row.observation, row.info["objective"] = start.observation, start.info["objective"]
        row.signals = {f"{name}_start": [value] for name, value in start.info.get("signals", {}).items()}
        row.chunk = chat.prompt(start.info["objective"], start.observation)
        if len(row.chunk) >= sampling.episode_tokens:
            raise ValueError(
                f"the prompt of {task.id} has {len(row.chunk)} tokens: raise episode_tokens={sampling.episode_tokens}"
            )
        row.tell(row.chunk)
        live.append(row)
    if len(done) == len(tasks) > 1:  # no bad luck: a wrong option, a missing library
        raise RuntimeError(f"none of {len(tasks)} environments could be started: {done[0].info['error']}")
    return live


def _advance(pool, live, turns, chat, sampling, backend, done) -> list[_Live]:
    """Give every command to its environment; those that go on get their next chunk."""
    for row, (ids, logprobs) in zip(live, turns, strict=True):
        row.say(ids, logprobs, chat.command_text(ids))
    results = pool.step({row.index: row.commands[-1] for row in live})
    going = []
    for position, (row, (ids, _)) in enumerate(zip(live, turns, strict=True)):
        end = _after_step(row, results[row.index], ids, chat, sampling)
        if end:
            done[row.index] = row.finish(end)
            pool.close([row.index])
        else:
            going.append(position)
    if going and len(going) < len(live):
        backend.keep(going)
    return [live[position] for position in going]


def _after_step(row: _Live, result, ids: list[int], chat: Chat, sampling: Sampling) -> str | None:
    """How the episode ends, or None when it goes on."""
    if isinstance(result, EnvError):
        row.info["error"] = result.text
        return "env_error"
    row.record(result.reward, result.info.get("signals", {}))
    row.observation = result.observation
    if result.terminated:
        return "won" if result.info["won"] else "lost"
    if result.truncated:
        return "turn_limit"
    row.chunk = chat.chunk(result.observation, ended=ids[-1] == chat.end_id)
    if len(row.tokens) + len(row.chunk) >= sampling.episode_tokens:
        return "context_limit"
    row.tell(row.chunk)
    return None


def _uniforms(seed: tuple[int, ...], episodes: list[int], turn: int, tokens: int) -> np.ndarray:
    """Uniform numbers (episodes, tokens), each keyed by seed, episode, turn and token."""
    return np.stack([np.random.default_rng([*seed, episode, turn]).random(tokens) for episode in episodes])
