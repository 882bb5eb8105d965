"""Rewards: an episode -> one reward a turn.

In:  Episode: its end, its own rewards, its signals. Never the model's text.     Out: list[float], one a turn.
A won episode sums to 1, one that is not won to 0.5 at most (before step_cost and format_penalty, which never turn that
around). `progress` adds the same 1 to both.
Taught in: notebooks/40_recipe.ipynb
"""

import math
from collections.abc import Callable
from functools import partial, wraps

from cookbook.episode import Episode

Reward = Callable[[Episode], list[float]]
UNFINISHED = 0.5  # the most that an episode which is not won can earn
DEDUCTED = 0.4  # the most that costs and penalties take from an episode, so that 1 - DEDUCTED > UNFINISHED


def sparse(episode: Episode) -> list[float]:
    """1 on the last turn of a won episode, else nothing."""
    return [0.0] * (episode.turns - 1) + [float(episode.won)] if episode.turns else []


def dense(episode: Episode) -> list[float]:
    """The environment's score increments, scaled so that all of them are worth UNFINISHED; winning pays the rest."""
    most = _start(episode, "max_score")
    if not most > 0:
        raise ValueError(f"episode {episode.task.id}: max_score_start is {most}: nothing to scale the score with")
    score, before, paid = 0.0, 0.0, []
    for reward in episode.rewards:
        score += reward
        worth = UNFINISHED * min(score / most, 1.0)
        paid.append(worth - before)
        before = worth
    return _topped_up(episode, paid)


def milestones(episode: Episode) -> list[float]:
    """Each new minimum of the oracle's remaining plan pays once, in proportion to the steps it took off the plan.

    The whole plan is worth UNFINISHED and winning pays the rest. No cycle earns: a minimum is new only once.
    Where the first plan is not known (-1, NaN) or empty, only winning pays.
    """
    longest = _start(episode, "plan_left")
    if not longest > 0:
        return sparse(episode)
    best, paid = longest, []
    for left in _signal(episode, "plan_left"):
        gain = best - left if 0 <= left < best else 0.0
        best -= gain
        paid.append(UNFINISHED * gain / longest)
    return _topped_up(episode, paid)


def progress(episode: Episode, gamma_turn: float = 1.0) -> list[float]:
    """Sparse, shaped by the potential -plan_left / plan_left_start, 0 at every end (Ng, Harada & Russell 1999).

    The best policy stays the best if gamma_turn is the learner's own. Summed with that discount, the shaping is +1 for
    every episode of a task, won or not: RLOO and GRPO cannot see it. A turn whose plan is not known (-1, NaN) keeps the
    potential of the turn before; without a first plan there is no scale and no shaping.
    """
    longest = _start(episode, "plan_left")
    if not longest > 0:
        return sparse(episode)
    potential, out = -1.0, []
    for turn, (reward, left) in enumerate(zip(sparse(episode), _signal(episode, "plan_left"), strict=True)):
        ended = turn == episode.turns - 1
        after = 0.0 if ended else (-left / longest if left >= 0 else potential)
        out.append(reward + gamma_turn * after - potential)
        potential = after
    return out


REWARDS = {"sparse": sparse, "dense": dense, "milestones": milestones, "progress": progress}


def reward_function(
    name: str, step_cost: float = 0.0, format_penalty: float = 0.0, gamma_turn: float | None = None
) -> Reward:
    """A reward by name, checked. Raises ValueError that lists the names, or names the option that does not fit.

    step_cost: taken from every turn. format_penalty: taken from a turn with signals["invalid"]. Together they take at
    most DEDUCTED from an episode. gamma_turn: the learner's discount a turn, which progress alone uses (default 1).
    """
    if name not in REWARDS:
        raise ValueError(f"no reward {name!r}: use one of {', '.join(REWARDS)}")
    if gamma_turn is not None and name != "progress":
        raise ValueError(f"gamma_turn={gamma_turn} with {name}: only progress discounts")
    for option, value in {"step_cost": step_cost, "format_penalty": format_penalty, "gamma_turn": gamma_turn}.items():
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{option}={value}: a number from 0 to 1")
    reward = REWARDS[name] if gamma_turn is None else wraps(progress)(partial(progress, gamma_turn=gamma_turn))
    if step_cost or format_penalty:
        reward = _deducting(reward, step_cost, format_penalty)
    return checked(reward)


def checked(function: Reward) -> Reward:
    """The same reward; ValueError naming episode and turn when it fails or gives what is not one number a turn."""
    name = getattr(function, "__name__", type(function).__name__)

    @wraps(function, assigned=("__name__", "__doc__"))
    def checked_reward(episode: Episode) -> list[float]:
        where = f"episode {episode.task.id}: reward {name}"
        try:
            paid = list(function(episode))
        except Exception as error:
            raise ValueError(f"{where} raised {type(error).__name__}: {error}") from error
        if len(paid) != episode.turns:
            raise ValueError(f"{where} gave {len(paid)} rewards for {episode.turns} turns: one a turn")
        for turn, reward in enumerate(paid):
            if not _is_finite(reward):
                raise ValueError(f"{where} gave {reward!r} as the reward of turn {turn}: a finite number")
        return [float(reward) for reward in paid]

    return checked_reward


def _deducting(reward: Reward, step_cost: float, format_penalty: float) -> Reward:
    @wraps(reward, assigned=("__name__", "__doc__"))
    def with_deductions(episode: Episode) -> list[float]:
        invalid = _signal(episode, "invalid") if format_penalty else [0.0] * episode.turns
        taken, out = 0.0, []
        for paid, wrong in zip(reward(episode), invalid, strict=True):
            cost = min(step_cost + format_penalty * (wrong == 1), DEDUCTED - taken)
            taken += cost
            out.append(paid - cost)
        return out

    return with_deductions


def _topped_up(episode: Episode, paid: list[float]) -> list[float]:
    """On a win, the last turn also pays what is missing to 1."""
    if episode.won:
        paid[-1] += 1.0 - sum(paid)
    return paid


def _signal(episode: Episode, name: str) -> list[float]:
    if name not in episode.signals:
        raise ValueError(f"episode {episode.task.id}: no signal {name!r}, only {', '.join(episode.signals) or 'none'}")
    return episode.signals[name]


def _start(episode: Episode, name: str) -> float:
    return _signal(episode, f"{name}_start")[0]


def _is_finite(reward) -> bool:
    try:
        return math.isfinite(reward)
    except TypeError:
        return False
