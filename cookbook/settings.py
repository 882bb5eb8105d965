"""Settings: one reinforcement-learning run as a frozen, checked config, and the stages of its curriculum.

In:  numbers and names.     Out: RLSettings, Stage; or an error that names the field, the value and what would do.
"""

import math
from dataclasses import dataclass, fields

from cookbook.rewards import reward_function
from cookbook.rollout import Sampling
from cookbook.tasks import TaskSet

AT_LEAST_ONE = (
    "iterations", "episodes", "turn_limit", "turn_tokens", "episode_tokens", "epochs", "minibatches", "batch_tokens",
)  # fmt: skip
AT_MOST_ONE = ("gamma_token", "lambda_token")


@dataclass(frozen=True)
class RLSettings:
    """One reinforcement-learning run. Rates are for LoRA on the tiny model; the paper's, for 1.5 B weights, differ."""

    iterations: int = 36
    """collect-and-update rounds"""
    episodes: int = 48
    """games an iteration"""
    turn_limit: int = 12
    """turns a game"""
    turn_tokens: int = 24
    """tokens a turn"""
    episode_tokens: int = 1_024
    """tokens a game"""
    temperature: float = 1.0
    """of the sampling, and of every log-probability"""
    reward: str = "milestones"
    """a name that rewards.reward_function knows"""
    learning_rate: float = 3e-4
    """AdamW on the policy's adapter"""
    critic_learning_rate: float = 1e-3
    """AdamW on the critic's adapter and value head"""
    epochs: int = 1
    """passes over an iteration's episodes"""
    minibatches: int = 4
    """optimiser steps a pass"""
    clip_range: float = 0.2
    """how far the probability ratio may move before its gradient stops"""
    clip_range_value: float = 0.5
    """how far a value may move from the rollout's before its gradient stops"""
    kl_coefficient: float = 0.003
    """price of a nat away from the reference, in the reward"""
    gamma_token: float = 1.0
    """discount a token the policy wrote"""
    lambda_token: float = 0.99
    """GAE's trace decay a token the policy wrote"""
    max_grad_norm: float = 1.0
    """gradients longer than this are shortened"""
    batch_tokens: int = 2_048
    """tokens of one forward and backward pass, padding included; a CPU likes few, a GPU many"""
    seed: int = 0
    """of tasks' order, sampling and minibatches"""

    def __post_init__(self):
        for field in fields(self):
            check_number(field.name, getattr(self, field.name), field.type, int(field.name in AT_LEAST_ONE))
        for name in AT_MOST_ONE:
            if getattr(self, name) > 1:
                raise ValueError(f"{name}={getattr(self, name)!r}: a number from 0 to 1")
        if self.minibatches > self.episodes:
            raise ValueError(f"minibatches={self.minibatches}: more than the {self.episodes} episodes of an iteration")
        _ = self.sampling  # refuses a bad temperature
        reward_function(self.reward)

    @property
    def sampling(self) -> Sampling:
        """How the policy speaks while it learns."""
        return Sampling(self.temperature, turn_tokens=self.turn_tokens, episode_tokens=self.episode_tokens)


def check_number(name: str, value, kind: type, low: int) -> None:
    """Raises ValueError naming the field unless value is a whole (int) or finite (float) number of at least `low`."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if kind is int and not (whole and value >= low):
        raise ValueError(f"{name}={value!r}: a whole number of at least {low}")
    if kind is float and not ((whole or isinstance(value, float)) and low <= value and math.isfinite(value)):
        raise ValueError(f"{name}={value!r}: a number of at least {low}")


@dataclass(frozen=True)
class Stage:
    """Part of a curriculum: so many iterations on these tasks."""

    tasks: TaskSet
    iterations: int
