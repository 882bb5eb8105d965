"""Fixtures: models of a few thousand weights made on the spot, so that tests need no download and little time."""

import os
import signal

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from cookbook.tiny.tokenize import CHAT_TEMPLATE

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs us in the background has it ignored

CHATML = (  # the shape of Qwen's: a default system line, two stop tokens, a newline after each turn
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(specials: list[str], template: str, eos: str) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=specials[0], eos_token=eos, additional_special_tokens=specials[1:]
    )
    fast.chat_template = template
    return fast


@pytest.fixture(scope="session")
def tokenizer():
    return byte_tokenizer(["<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"], CHAT_TEMPLATE, "<|end|>")


@pytest.fixture(scope="session")
def chatml_tokenizer():
    return byte_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], CHATML, "<|endoftext|>")


def small_llama(vocabulary: int, seed: int = 0, hidden: int = 32, layers: int = 2) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=4_096, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def small_gpt2(vocabulary: int, seed: int = 0) -> GPT2LMHeadModel:
    """Absolute positions and another head layout: what is only right for Llama fails here."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=vocabulary, n_embd=32, n_layer=2, n_head=2, n_positions=4_096, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="session", params=["llama", "gpt2"])
def model(request, tokenizer):
    return {"llama": small_llama, "gpt2": small_gpt2}[request.param](len(tokenizer))
