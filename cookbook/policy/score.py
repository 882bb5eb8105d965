"""Score: token ids -> log-probabilities and values, only where the policy wrote.

In:  a right-padded batch (rows, length) and a mask of the policy's tokens.     Out: flat, one entry a written token.
Position t predicts token t+1: what belongs to token t is read at t-1, the state before it.
Padding on the right needs neither mask nor position ids: every row starts at position 0 and attention is causal.
Leaves out: logits at observation tokens; they are never computed.
"""

import contextlib

import torch
from torch import Tensor


@contextlib.contextmanager
def _head_sees(model, positions: Tensor):
    """While open, the output head gets only the hidden states at these positions: (n, hidden), in row order."""
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, args: (args[0][positions],))
    try:
        yield
    finally:
        hook.remove()


def written(mask: Tensor) -> Tensor:
    """Where a written token is predicted from: the mask moved one to the left.   (rows, T) -> (rows, T)"""
    if mask[:, 0].any():
        raise ValueError("the first token of a sequence cannot be one the policy wrote: nothing predicts it")
    return torch.nn.functional.pad(mask[:, 1:], (0, 1))


def token_logits(model, ids: Tensor, mask: Tensor) -> Tensor:
    """Logits for every written token.   ids (rows, T), mask (rows, T) -> (n, vocabulary)"""
    with _head_sees(model, written(mask)):
        return model(input_ids=ids, use_cache=False).logits


def token_logprobs(model, ids: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of every written token, and the entropy there, at this temperature.   -> (n,), (n,)"""
    logits = token_logits(model, ids, mask).float() / temperature
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, ids[mask][:, None]).squeeze(-1), entropy


def token_values(model, value_head, ids: Tensor, mask: Tensor) -> Tensor:
    """The value of the state before every written token.   -> (n,)"""
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    return value_head(hidden[written(mask)].float()).squeeze(-1)
