"""The policy: model + tokenizer + adapters.

load      a name or path -> a causal LM and its tokenizer, or a clear error
adapters  one frozen base, three LoRA adapters: policy, critic (with a value head), reference
cache     a KV cache in which every row grows at its own pace
score     log-probabilities and values of episodes, in length-bucketed batches
"""

from cookbook.policy import _quiet  # noqa: F401
from cookbook.policy.adapters import LoraSettings, Policy
from cookbook.policy.load import find_model, load_model
from cookbook.policy.score import token_logprobs, token_values

__all__ = ["LoraSettings", "Policy", "find_model", "load_model", "token_logprobs", "token_values"]
