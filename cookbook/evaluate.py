"""Evaluate: policy + held-out tasks -> success with intervals.

In:  episodes, or a policy and tasks.     Out: rates, Wilson intervals, paired comparisons.
Leaves out: variation over training seeds; average over seeds first, tasks second, with `bootstrap_over_seeds`.
Taught in: notebooks/40_recipe.ipynb
"""

import math
from dataclasses import dataclass

import numpy as np

from cookbook.chat import Chat
from cookbook.episode import Episode
from cookbook.rollout import HFBackend, Sampling, rollout

Z95 = 1.959963984540054


def wilson(successes: int, n: int) -> tuple[float, float]:
    """95 % interval of a success rate (Wilson 1927).   Raises ValueError when n is 0 or successes do not fit."""
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"wilson({successes}, {n}): n at least 1, successes between 0 and n")
    rate = successes / n
    centre = (rate + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 * math.sqrt(rate * (1 - rate) / n + Z95**2 / (4 * n**2)) / (1 + Z95**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Evaluation:
    """How a policy did on a list of tasks, one episode each."""

    episodes: list[Episode]

    @property
    def played(self) -> list[Episode]:
        """Episodes whose environment lived to the end; the others count neither as won nor as lost."""
        return [e for e in self.episodes if e.end != "env_error"]

    @property
    def errors(self) -> int:
        """How many environments died."""
        return len(self.episodes) - len(self.played)

    @property
    def success(self) -> float:
        """Share of played episodes that were won. Raises ValueError when no environment lived to the end."""
        if not self.played:
            raise ValueError(f"no rate of success: of {len(self.episodes)} environments none lived to the end")
        return sum(e.won for e in self.played) / len(self.played)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the success rate."""
        return wilson(sum(e.won for e in self.played), len(self.played))

    def success_within(self, turns: int) -> float:
        """Share won in at most so many turns."""
        return sum(e.won and e.turns <= turns for e in self.played) / len(self.played)

    def flat(self, name: str, suffix: str = "") -> dict[str, float]:
        """For a results dict: NAME_success with _low and _high."""
        low, high = self.interval
        key = f"{name}_success{suffix}"
        return {key: round(self.success, 4), f"{key}_low": round(low, 4), f"{key}_high": round(high, 4)}

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.success:.2f} [{low:.2f}, {high:.2f}] of {len(self.played)} games"


def evaluate(policy, tasks, sampling: Sampling, turn_limit: int, seed: int = 0, role: str = "policy") -> Evaluation:
    """Play every task once. The evaluation's own randomness starts at (seed, a constant) and never meets training's."""
    tasks = list(tasks)
    chat = Chat(policy.tokenizer, tasks[0].env)
    with policy.sampling(role) as model:
        backend = HFBackend(model, stop_ids(policy.tokenizer, chat), sampling)
        return Evaluation(rollout(backend, chat, tasks, sampling, turn_limit, seed=(seed, 982_451_653)))


def stop_ids(tokenizer, chat: Chat) -> set[int]:
    """Tokens that end a turn: the template's own, and the tokenizer's end of text."""
    return {chat.end_id} | ({tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set())


@dataclass(frozen=True)
class Paired:
    """Two policies on the same tasks."""

    difference: float
    """success of the second minus success of the first, over tasks that both played"""
    low: float
    high: float
    """95 % bootstrap interval over tasks"""
    gained: int
    """tasks that only the second won"""
    lost: int
    """tasks that only the first won"""
    p_value: float
    """exact two-sided McNemar test: chance of so uneven a split of gained and lost if both were equal"""


def compare(first: Evaluation, second: Evaluation, seed: int = 0) -> Paired:
    """Paired comparison. Raises ValueError when the two did not play the same tasks in the same order."""
    if [e.task for e in first.episodes] != [e.task for e in second.episodes]:
        raise ValueError("the two evaluations are not of the same tasks in the same order: they cannot be paired")
    pairs = [
        (a.won, b.won)
        for a, b in zip(first.episodes, second.episodes, strict=True)
        if "env_error" not in (a.end, b.end)
    ]
    if not pairs:
        raise ValueError("no task was played to the end by both: there is nothing to compare")
    change = np.array([int(b) - int(a) for a, b in pairs])
    samples = np.random.default_rng(seed).choice(change, (10_000, len(change))).mean(1)
    gained, lost = int((change > 0).sum()), int((change < 0).sum())
    flips = gained + lost
    tail = sum(math.comb(flips, k) for k in range(min(gained, lost) + 1)) / 2**flips
    low, high = np.quantile(samples, [0.025, 0.975])
    return Paired(float(change.mean()), float(low), float(high), gained, lost, min(1.0, 2 * tail))


def bootstrap_over_seeds(wins: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Mean and 95 % interval, training seeds drawn first, tasks second.   wins (seeds, tasks) of 0 and 1"""
    random = np.random.default_rng(seed)
    seeds, tasks = wins.shape
    means = [
        wins[random.integers(seeds, size=seeds)[:, None], random.integers(tasks, size=tasks)[None, :]].mean()
        for _ in range(4_000)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(wins.mean()), float(low), float(high)


def pass_at(wins: np.ndarray, k: int) -> float:
    """Chance that at least one of k tries wins, unbiased (Chen et al. 2021).   wins (tries, tasks)"""
    tries = len(wins)
    if not 1 <= k <= tries:
        raise ValueError(f"pass@{k} needs at least {k} tries a task, there are {tries}")
    failures = tries - wins.sum(0)
    return float(np.mean([1 - math.comb(int(f), k) / math.comb(tries, k) for f in failures]))
