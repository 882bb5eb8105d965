"""Loss: advantages -> a number to go down, and alarms for when training goes wrong.

In:  flat tensors over the policy's tokens of a batch.     Out: a scalar and a few statistics.
Every sum is divided by what the whole optimiser step holds (`total` tokens, `episodes`), never by what this batch
holds, so that the batches of one step add up to a mean, on several processes too.
Leaves out: KL in the reward, which is credit's `token_penalties`; see `kl_estimate`.
Taught in: notebooks/34_stability.ipynb
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean

import torch
from torch import Tensor

AGGREGATIONS = ("token_mean", "sequence_mean", "fixed_length")


def aggregate(
    terms: Tensor,
    total: int,
    aggregation: str = "token_mean",
    episode_index: Tensor | None = None,
    episodes: int | None = None,
    fixed_length: int | None = None,
) -> Tensor:
    """One term a token -> this batch's share of the step's loss.   (n,) -> scalar

    token_mean: over the step's `total` tokens, long episodes weigh more (DAPO, Yu et al. 2025; the paper's).
    sequence_mean: within each episode, then over the step's `episodes` (GRPO, Shao et al. 2024).
    fixed_length: sum / (episodes * fixed_length), no bias by length (Dr. GRPO, Liu et al. 2025).
    episode_index: (n,), from 0, which episode a token belongs to; an episode lies whole in one batch.
    """
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation {aggregation!r}: use one of {', '.join(AGGREGATIONS)}")
    if aggregation == "token_mean":
        return terms.sum() / total
    if not episodes:
        raise ValueError(f"{aggregation} needs episodes={episodes}: how many the whole optimiser step has")
    if aggregation == "fixed_length":
        if not fixed_length:
            raise ValueError(f"fixed_length={fixed_length}: the tokens that every episode counts as")
        return terms.sum() / (episodes * fixed_length)
    if episode_index is None or episode_index.shape != terms.shape:
        raise ValueError("sequence_mean needs episode_index, one for each token")
    lengths = torch.bincount(episode_index)
    return (terms / lengths[episode_index]).sum() / episodes


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip_range: float,
    total: int,
    dual_clip: float | None = None,
    aggregation: str = "token_mean",
    episode_index: Tensor | None = None,
    episodes: int | None = None,
    fixed_length: int | None = None,
) -> tuple[Tensor, dict]:
    """PPO's clipped surrogate (Schulman et al. 2017).   (n,) each -> scalar, statistics

    dual_clip: a token of negative advantage costs at most dual_clip * |advantage| (Ye et al. 2020; verl uses 3).
    The rest as in `aggregate`. Statistics are this batch's share of a mean over the step's `total` tokens: add them up.
    Raises FloatingPointError when the loss is not finite.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip={dual_clip}: above 1, or None")
    _check_flat(logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    log_ratio = logprobs - old_logprobs
    ratio = log_ratio.exp()
    surrogate = torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages)
    if dual_clip is not None:
        surrogate = torch.where(advantages < 0, torch.max(surrogate, dual_clip * advantages), surrogate)
    loss = aggregate(-surrogate, total, aggregation, episode_index, episodes, fixed_length)
    _check_finite(loss, logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages)
    with torch.no_grad():
        outside = ((ratio - 1).abs() > clip_range).float()
        stats = {
            "clip_fraction": outside.sum().item() / total,
            "approx_kl": (ratio - 1 - log_ratio).sum().item() / total,
            "ratio_mean": ratio.sum().item() / total,
        }
    return loss, stats


def ratio_max(logprobs: Tensor, old_logprobs: Tensor) -> float:
    """The largest probability ratio new / old; it cannot be added up over batches as the statistics can.   (n,) each"""
    return (logprobs - old_logprobs).max().exp().item() if len(logprobs) else 1.0


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip_range_value: float, total: int) -> Tensor:
    """Half the squared error, the worse of clipped and unclipped (OpenAI baselines' PPO2).   (n,) each -> scalar"""
    _check_flat(values=values, old_values=old_values, returns=returns)
    clipped = old_values + (values - old_values).clamp(-clip_range_value, clip_range_value)
    loss = 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2).sum() / total
    _check_finite(loss, values=values, old_values=old_values, returns=returns)
    return loss


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, kind: str = "k1") -> Tensor:
    """KL(policy || reference) at each sampled token (Schulman 2020, "Approximating KL divergence").   (n,) -> (n,)

    k1: unbiased, may be negative: for the reward. As a loss its expected gradient is 0: it pulls nowhere.
    k2: biased, but its gradient is the KL's: for the loss. k3: unbiased and never negative: for logs, and GRPO's loss.
    """
    log_ratio = logprobs - ref_logprobs
    if kind == "k1":
        return log_ratio
    if kind == "k2":
        return 0.5 * log_ratio**2
    if kind == "k3":
        return torch.expm1(-log_ratio) + log_ratio
    raise ValueError(f"kind {kind!r}: use one of k1, k2, k3")


def entropy(logits: Tensor) -> Tensor:
    """Nats of each distribution; subtract its aggregate times a coefficient for a bonus.   (..., V) -> (...)"""
    logprobs = logits.log_softmax(-1)
    return -(logprobs.exp() * logprobs.clamp(min=torch.finfo(logprobs.dtype).min)).sum(-1)  # 0 * -inf would be NaN


def went_too_far(approx_kl: float, target_kl: float | None) -> bool:
    """Whether to stop this iteration's epochs: the update is 1.5 times target_kl away (OpenAI Spinning Up's PPO)."""
    return target_kl is not None and approx_kl > 1.5 * target_kl


def _check_flat(**tensors: Tensor) -> None:
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    if len(set(shapes.values())) > 1 or len(next(iter(shapes.values()))) != 1:
        raise ValueError(f"expected flat tensors of one length, got {shapes}")


def _check_finite(loss: Tensor, **tensors: Tensor) -> None:
    if not torch.isfinite(loss):
        bad = [name for name, t in tensors.items() if not torch.isfinite(t).all()]
        raise FloatingPointError(f"loss is {loss.item()}; not finite: {', '.join(bad) or 'the probability ratio'}")


@dataclass
class Watchdog:
    """Give it each iteration's metrics; it answers in plain words what goes wrong and what to try.

    Reads, where they are there: entropy, kl, trained_share (of report.METRICS), repeated_share (see the function) and
    reward_deviation (of the returns in a group, mean over groups; without groups, of the batch).
    An alarm sounds once its condition has held for `patience` iterations in a row; again only after it has cleared.
    """

    warm_up: int = 3
    """iterations whose mean entropy and trained share are what later ones are compared with"""
    patience: int = 3
    """iterations in a row before an alarm"""
    entropy_kept: float = 0.2
    """alarm below this share of the first entropy"""
    trained_kept: float = 0.5
    """alarm below this share of the first trained share"""
    repeated_limit: float = 0.5
    """alarm when more of the commands than this say the one before again"""
    kl_limit: float = 0.3
    """alarm above so many nats a token away from the reference"""
    least_deviation: float = 1e-3
    """alarm when returns differ by less: nothing is left to compare"""
    seen: dict[str, list[float]] = field(default_factory=dict)
    """every number so far, by metric"""

    def __call__(self, metrics: dict[str, float]) -> list[str]:
        """What to tell the user after this iteration; most often nothing."""
        for name in ("entropy", "repeated_share", "kl", "reward_deviation", "trained_share"):
            if name in metrics:
                self.seen.setdefault(name, []).append(float(metrics[name]))
        found = [self._entropy(), self._repetition(), self._kl(), self._deviation(), self._trained()]
        return [warning for warning in found if warning]

    def _entropy(self) -> str | None:
        return self._fell("entropy", self.entropy_kept,
            "the policy has all but stopped exploring. Try: a lower learning rate, an entropy bonus, a larger"
            " kl_coefficient, or go on from an earlier checkpoint")  # fmt: skip

    def _trained(self) -> str | None:
        return self._fell("trained_share", self.trained_kept,
            "commands get shorter or observations longer, and the loss sees ever fewer tokens. Try: read some"
            " episodes; check that no episode is dropped; raise format_penalty if commands became empty")  # fmt: skip

    def _repetition(self) -> str | None:
        return self._alarm("repeated_share", lambda x: x > self.repeated_limit,
            "the policy says the same command again and again. Try: step_cost in the reward, a lower learning rate, a"
            " larger kl_coefficient; check that observations answer what was done")  # fmt: skip

    def _kl(self) -> str | None:
        return self._alarm("kl", lambda x: x > self.kl_limit,
            "the policy runs away from the reference, and its text may no longer be language. Try: a larger"
            " kl_coefficient, a lower learning rate, fewer epochs or a target_kl that stops them")  # fmt: skip

    def _deviation(self) -> str | None:
        return self._alarm("reward_deviation", lambda x: x < self.least_deviation,
            "all episodes earn the same, so there is no gradient. Try: easier or harder tasks, so that some are won"
            " and some are not; a denser reward; larger groups; a higher temperature")  # fmt: skip

    def _fell(self, name: str, kept: float, advice: str) -> str | None:
        first = self.seen.get(name, [])[: self.warm_up]
        if len(first) < self.warm_up:
            return None
        level = kept * mean(first)
        return self._alarm(name, lambda x: x < level, f"it began at {mean(first):.3g}; {advice}")

    def _alarm(self, name: str, bad, advice: str) -> str | None:
        series = self.seen.get(name, [])
        run = 0
        while run < len(series) and (math.isnan(series[-1 - run]) or bad(series[-1 - run])):
            run += 1
        if run != self.patience:
            return None
        return f"{name} is {series[-1]:.3g} and has been out of bounds for {run} iterations: {advice}."


def repeated_share(commands: Sequence[Sequence[str]]) -> float:
    """The share of commands, from each episode's second on, that say the one before again.   one list an episode"""
    pairs = [(a, b) for episode in commands for a, b in pairwise(episode)]
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else 0.0
