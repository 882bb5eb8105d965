"""The notebook takes any causal language model: another architecture, another tokenizer, another chat template."""

import time

import pytest
import torch
from conftest import CHATML
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from cookbook.envs.textworld.env import TextWorldEnv
from cookbook.envs.textworld.games import textworld_tasks
from cookbook.nbtools.cells import read_results
from cookbook.nbtools.index import load_index
from cookbook.nbtools.run import execute
from cookbook.policy import load_model


def save_qwen(folder):
    """A Qwen2 of a few thousand weights: grouped heads, biases, two stop tokens, a default system line."""
    texts = []
    for task in textworld_tasks("w2-o3-q4", "sft", 20):
        env = TextWorldEnv()
        observation, info = env.reset(task)
        texts += [observation, info["objective"]]
        env.close()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=specials[0], eos_token=specials[0], additional_special_tokens=specials[1:]
    )
    fast.chat_template = CHATML
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(fast), hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=4_096, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=0,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)


@pytest.mark.notebooks
@pytest.mark.timeout(0)
def test_the_recipe_runs_with_another_model(tmp_path):
    entry = load_index()["40"]
    save_qwen(tmp_path / "qwen")
    parameters = entry.profiles["ci"] | {"model": str(tmp_path / "qwen"), "demos": 4, "eval_games": 4, "episodes": 4}
    nb = execute(
        entry.path, tmp_path / "out.ipynb", parameters, profile="ci", wall_limit=300, cwd=tmp_path, stream=False
    )
    results = read_results(nb)
    assert results["model"].endswith("qwen")
    assert results["rl_success"] <= 0.5, "a model of noise does not win"


@pytest.mark.parametrize("name", ["./no/such/folder", "nobody/no-such-model"])
def test_a_model_that_is_not_there_is_refused_by_name_before_any_work(name, monkeypatch):
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_OFFLINE", True
    )  # a Hub that cannot be reached is asked for 45 s
    start = time.monotonic()
    with pytest.raises(ValueError, match=f"{name}.*tiny|no model folder '{name}'"):
        load_model(name)
    assert time.monotonic() - start < 20
