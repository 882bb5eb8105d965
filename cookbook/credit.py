"""Credit: turn rewards -> one advantage for every token the policy wrote.

In:  list[Episode] with rewards, values.     Out: list of float arrays (T,), 0 where the policy was told.
Leaves out: the value model itself; see policy/score.py.
Two clocks: on "token" a step is a token that the policy wrote, on "turn" it is a whole command. What the policy was
told is never a step. `gamma_token` and `gamma_turn` say in their names which one they discount.
Taught in: notebooks/31_credit.ipynb
"""

from collections.abc import Hashable, Sequence

import numpy as np

from cookbook.episode import TOLD, Episode

ALGORITHMS = ("ppo", "rloo", "grpo", "reinforce++", "gigpo")
CLOCKS = ("token", "turn")
LIMITS = ("turn_limit", "context_limit")
EQUAL = 1e-9  # a group whose returns differ by less, relative to their size, has nothing to compare


def place_rewards(turn_ids: Sequence[int], rewards: Sequence[float]) -> np.ndarray:
    """Each turn's reward on the last token the policy wrote in that turn.   (T,), (turns,) -> (T,)"""
    placed = np.zeros(len(turn_ids))
    last = {turn: i for i, turn in enumerate(turn_ids) if turn != TOLD}
    if sorted(last) != list(range(len(rewards))):
        raise ValueError(f"{len(rewards)} rewards for turns {sorted(last)}: one a turn")
    for turn, reward in enumerate(rewards):
        placed[last[turn]] = reward
    return placed


def sum_by_turn(turn_ids: Sequence[int], token_rewards: np.ndarray) -> np.ndarray:
    """What the tokens of each turn earned together.   (T,), (T,) -> (turns,)"""
    written = np.asarray(turn_ids, dtype=int) != TOLD
    return np.bincount(np.asarray(turn_ids, dtype=int)[written], weights=np.asarray(token_rewards)[written])


def spread_over_turns(turn_ids: Sequence[int], per_turn: np.ndarray) -> np.ndarray:
    """Each turn's number on every token the policy wrote in it, 0 elsewhere.   (T,), (turns,) -> (T,)"""
    ids = np.asarray(turn_ids, dtype=int)
    return np.concatenate([per_turn, [0.0]])[ids]  # TOLD = -1 picks the last one, the 0


def token_gae(rewards, values, mask, gamma_token: float, lambda_token: float, bootstrap: float = 0.0):
    """GAE over the policy's tokens only, as if what it was told were not there (Schulman et al. 2016).

    rewards, values, mask: (T,); values[t] is the value of the state before token t; bootstrap: value after the last.
    Returns advantages and returns, (T,) each, 0 where mask is false.
    """
    if not len(rewards) == len(values) == len(mask):
        raise ValueError(f"{len(rewards)} rewards, {len(values)} values, {len(mask)} in mask: one each a token")
    advantages, returns = np.zeros(len(mask)), np.zeros(len(mask))
    carried, next_value = 0.0, bootstrap
    for t in np.flatnonzero(mask)[::-1]:
        delta = rewards[t] + gamma_token * next_value - values[t]
        carried = delta + gamma_token * lambda_token * carried
        advantages[t], returns[t], next_value = carried, carried + values[t], values[t]
    return advantages, returns


def turn_gae(turn_ids, turn_rewards, values, gamma_turn: float, lambda_turn: float, bootstrap: float = 0.0):
    """GAE with a turn as the step: the value is read at the turn's first token, the turn's advantage is on each.

    turn_ids, values: (T,); turn_rewards: (turns,); bootstrap: value after the last turn.
    Returns advantages and returns, (T,) each; within a turn both are the same on each token.
    Source: Schulman et al. 2016 on turns. Leaves out: the token level that VAGEN's Bi-Level GAE puts below it.
    """
    ids = np.asarray(turn_ids, dtype=int)
    first_tokens = [int(np.flatnonzero(ids == turn)[0]) for turn in range(len(turn_rewards))]
    every_turn = np.ones(len(turn_rewards), dtype=bool)
    per_turn = token_gae(turn_rewards, np.asarray(values)[first_tokens], every_turn, gamma_turn, lambda_turn, bootstrap)
    return tuple(spread_over_turns(ids, numbers) for numbers in per_turn)


def returns_to_go(rewards, gamma: float) -> np.ndarray:
    """What each step and all later ones earn, gamma a step (Williams 1992, REINFORCE).   (steps,) -> (steps,)"""
    out, carried = np.zeros(len(rewards)), 0.0
    for step in reversed(range(len(rewards))):
        carried = rewards[step] + gamma * carried
        out[step] = carried
    return out


def reinforce_plus_plus(rewards, mask, gamma_token: float) -> np.ndarray:
    """Returns-to-go of the policy's tokens, carried across what it was told (Hu 2025).   (T,), (T,) -> (T,)

    The batch is whitened afterwards, by `whiten`; rewards already carry the KL to the reference.
    """
    written = np.asarray(mask, dtype=bool)
    out = np.zeros(len(written))
    out[written] = returns_to_go(np.asarray(rewards)[written], gamma_token)
    return out


def rloo(episode_returns: Sequence[float], group_ids: Sequence[Hashable]) -> np.ndarray:
    """How much better each did than the mean of its siblings, itself left out (Ahmadian et al. 2024).   (n,) -> (n,)

    Raises ValueError when a group has one member or a return is not finite.
    """
    returns, out = _finite(episode_returns, group_ids), np.zeros(len(episode_returns))
    for members in _groups(group_ids, at_least=2).values():
        out[members] = _centred(returns[members]) * len(members) / (len(members) - 1)
    return out


def grpo(episode_returns: Sequence[float], group_ids: Sequence[Hashable], divide_by_std: bool = True) -> np.ndarray:
    """Each return minus its group's mean, divided by its sample deviation (Shao et al. 2024).   (n,) -> (n,)

    divide_by_std=False is Dr. GRPO (Liu et al. 2025). Raises ValueError as `rloo` does.
    """
    returns = _finite(episode_returns, group_ids)
    return _relative(returns, _groups(group_ids, at_least=2), divide_by_std)


def gigpo(
    turn_rewards: Sequence[Sequence[float]], observations: Sequence[Sequence[str]], group_ids: Sequence[Hashable],
    gamma_turn: float = 0.95, step_weight: float = 1.0, divide_by_std: bool = True,
) -> list[np.ndarray]:  # fmt: skip
    """GRPO of the episodes, plus GRPO among the turns of a group that saw the same (Feng et al. 2025).   (turns,) each

    The turns are compared by their discounted return from there on; an observation that was seen once gives 0.
    Leaves out: similar observations are not joined, and equal text counts as an equal state.
    """
    episode_level = grpo([float(np.sum(rewards)) for rewards in turn_rewards], group_ids, divide_by_std)
    anchors = [(group, seen) for group, texts in zip(group_ids, observations, strict=True) for seen in texts]
    flat = np.concatenate([returns_to_go(rewards, gamma_turn) for rewards in turn_rewards])
    turn_level = _relative(_finite(flat, anchors), _groups(anchors), divide_by_std)
    parts = np.split(turn_level, np.cumsum([len(rewards) for rewards in turn_rewards])[:-1])
    return [one + step_weight * part for one, part in zip(episode_level, parts, strict=True)]


def whiten(arrays: Sequence[np.ndarray], masks: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
    """Mean 0 and deviation 1 over all the batch's written tokens; all-equal values become exact zeros.   (T,) each

    masks: which entries are tokens the policy wrote; without them, all are.
    """
    masks = [np.ones(len(a), dtype=bool) for a in arrays] if masks is None else masks
    flat = np.concatenate([a[m] for a, m in zip(arrays, masks, strict=True)])
    if not len(flat) or not _centred(flat).any():
        return [np.zeros(len(a)) for a in arrays]
    return [np.where(m, (a - flat.mean()) / flat.std(), 0.0) for a, m in zip(arrays, masks, strict=True)]


def _groups(ids: Sequence[Hashable], at_least: int = 1) -> dict[Hashable, list[int]]:
    groups: dict[Hashable, list[int]] = {}
    for i, name in enumerate(ids):
        groups.setdefault(name, []).append(i)
    small = [name for name, members in groups.items() if len(members) < at_least]
    if small:
        raise ValueError(f"group {small[0]!r} has one episode, nothing to compare it with: raise group_size above 1")
    return groups


def _finite(numbers: Sequence[float], ids: Sequence[Hashable]) -> np.ndarray:
    numbers = np.asarray(numbers, dtype=float)
    if len(numbers) != len(ids):
        raise ValueError(f"{len(numbers)} returns for {len(ids)} group ids")
    if not np.isfinite(numbers).all():
        bad = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"return {bad} (group {ids[bad]!r}) is {numbers[bad]}")
    return numbers


def _centred(numbers: np.ndarray) -> np.ndarray:
    if np.ptp(numbers) <= EQUAL * max(1.0, np.abs(numbers).max()):
        return np.zeros(len(numbers))  # a mean of equal numbers may be off by a rounding, which a deviation blows up
    return numbers - numbers.mean()


def _relative(numbers: np.ndarray, groups: dict[Hashable, list[int]], divide_by_std: bool) -> np.ndarray:
    out = np.zeros(len(numbers))
    for members in groups.values():
        centred = _centred(numbers[members])
        scale = centred.std(ddof=1) + 1e-6 if divide_by_std and len(members) > 1 else 1.0
        out[members] = centred / scale
    return out


def advantages(
    algorithm: str, episodes: list[Episode], rewards: list[list[float]], values: list[np.ndarray] | None = None,
    token_penalties: list[np.ndarray] | None = None, gamma: float = 1.0, lam: float = 1.0, clock: str = "token",
    bootstrap_limits: bool = False, final_values: list[float] | None = None, group_size: int = 1,
    divide_by_std: bool = True, step_weight: float = 1.0,
) -> tuple[list[np.ndarray], list[np.ndarray] | None]:  # fmt: skip
    """One advantage a token, and for ppo the returns that its critic should have said, else None.   (T,) each

    values: (T,) each, ppo only. token_penalties: (T,) each, subtracted from the token rewards: the KL to the
    reference times its coefficient. gamma: a step of `clock`, for all (gigpo: always a turn). lam: ppo only.
    Every end is terminal; with bootstrap_limits, ppo adds final_values[i], the value after the last observation of an
    episode that a limit cut. group_size: for rloo, grpo, gigpo, whose groups are the episodes of one task; a group
    that dead environments cut to one episode gets 0. Advantages of ppo and reinforce++ are whitened.
    Raises ValueError for unknown names, numbers out of range, wrong shapes, NaN, and episodes whose environment died.
    """
    _check_settings(algorithm, gamma, lam, clock, bootstrap_limits, group_size)
    _check_batch(episodes, rewards)
    masks = [np.asarray(e.turn_ids, dtype=int) != TOLD for e in episodes]
    paid = [place_rewards(e.turn_ids, r) for e, r in zip(episodes, rewards, strict=True)]
    if token_penalties is not None:
        _check_tokens("token_penalties", token_penalties, episodes, masks)
        paid = [p - np.asarray(penalty) for p, penalty in zip(paid, token_penalties, strict=True)]
    if algorithm == "ppo":
        _check_tokens("values", values, episodes, masks)
        after = _after_the_end(episodes, final_values) if bootstrap_limits else [0.0] * len(episodes)
        found, returns = _ppo(episodes, masks, paid, values, gamma, lam, clock, after)
        return whiten(found, masks), returns
    if algorithm == "gigpo":
        turns = [sum_by_turn(e.turn_ids, p) for e, p in zip(episodes, paid, strict=True)]
        return _by_group(episodes, lambda kept, ids: gigpo(
            [turns[i] for i in kept], [episodes[i].observations for i in kept], ids, gamma, step_weight, divide_by_std
        )), None  # fmt: skip
    to_go = [_to_go(e, m, p, gamma, clock) for e, m, p in zip(episodes, masks, paid, strict=True)]
    if algorithm == "reinforce++":
        return whiten(to_go, masks), None
    whole = np.array([g[m][:1].sum() for g, m in zip(to_go, masks, strict=True)])  # from the first written token on
    if algorithm == "rloo":
        return _by_group(episodes, lambda kept, ids: rloo(whole[kept], ids)), None
    return _by_group(episodes, lambda kept, ids: grpo(whole[kept], ids, divide_by_std)), None


def _ppo(episodes, masks, paid, values, gamma, lam, clock, after) -> tuple[list, list]:
    both = []
    for episode, mask, token_rewards, v, bootstrap in zip(episodes, masks, paid, values, after, strict=True):
        if clock == "turn":
            per_turn = sum_by_turn(episode.turn_ids, token_rewards)
            both.append(turn_gae(episode.turn_ids, per_turn, v, gamma, lam, bootstrap))
        else:
            both.append(token_gae(token_rewards, v, mask, gamma, lam, bootstrap))
    return [a for a, _ in both], [r for _, r in both]


def _to_go(episode, mask, token_rewards, gamma, clock) -> np.ndarray:
    if clock == "token":
        return reinforce_plus_plus(token_rewards, mask, gamma)
    per_turn = sum_by_turn(episode.turn_ids, token_rewards)
    return spread_over_turns(episode.turn_ids, returns_to_go(per_turn, gamma))


def _by_group(episodes: list[Episode], compare) -> list[np.ndarray]:
    """compare(indices, their groups) gives one number, or one a turn, for each of these episodes."""
    names = [f"{e.task.env}:{e.task.id}" for e in episodes]
    kept = [i for i, name in enumerate(names) if names.count(name) > 1] or list(range(len(names)))
    out = [np.zeros(len(e.turn_ids)) for e in episodes]
    for i, found in zip(kept, compare(kept, [names[i] for i in kept]), strict=True):
        out[i] = spread_over_turns(episodes[i].turn_ids, np.broadcast_to(found, episodes[i].turns))
    return out


def _after_the_end(episodes: list[Episode], final_values: list[float] | None) -> list[float]:
    if final_values is None or len(final_values) != len(episodes):
        raise ValueError("bootstrap_limits needs final_values: the value after the last observation, one an episode")
    after = [float(v) if e.end in LIMITS else 0.0 for e, v in zip(episodes, final_values, strict=True)]
    for i, value in enumerate(after):
        if not np.isfinite(value):
            raise ValueError(f"{_name(episodes, i)}: final_values is {value}")
    return after


def _name(episodes: list[Episode], i: int) -> str:
    return f"episode {i} (task {episodes[i].task.id})"


def _check_settings(algorithm, gamma, lam, clock, bootstrap_limits, group_size) -> None:
    for name, value, choices in (("algorithm", algorithm, ALGORITHMS), ("clock", clock, CLOCKS)):
        if value not in choices:
            raise ValueError(f"{name} {value!r}: use one of {', '.join(choices)}")
    for name, number in {"gamma": gamma, "lam": lam}.items():
        if not 0 <= number <= 1:
            raise ValueError(f"{name}={number}: a number from 0 to 1")
    if bootstrap_limits and algorithm != "ppo":
        raise ValueError(f"bootstrap_limits with {algorithm}: only ppo has a critic that can value what was cut off")
    if algorithm in ("rloo", "grpo", "gigpo") and group_size < 2:
        raise ValueError(f"group_size={group_size}: {algorithm} compares the episodes of a task, so at least 2")
    if algorithm == "gigpo" and clock == "token" and gamma != 1:
        raise ValueError(f"gamma={gamma} a token: gigpo discounts a turn; use clock='turn'")


def _check_batch(episodes: list[Episode], rewards: list[list[float]]) -> None:
    if not episodes or len(rewards) != len(episodes):
        raise ValueError(f"{len(episodes)} episodes, {len(rewards)} lists of rewards: one each, at least one")
    dead = [e.task.id for e in episodes if e.end == "env_error"]
    if dead:
        raise ValueError(f"episodes {', '.join(dead)} ended by env_error: leave them out of credit")
    for i, episode in enumerate(episodes):
        if len(rewards[i]) != episode.turns:
            raise ValueError(f"{_name(episodes, i)}: {len(rewards[i])} rewards for {episode.turns} turns")
        for turn, reward in enumerate(rewards[i]):
            if not np.isfinite(reward):
                raise ValueError(f"{_name(episodes, i)}: the reward of turn {turn} is {reward}")


def _check_tokens(name: str, arrays, episodes: list[Episode], masks: list[np.ndarray]) -> None:
    if arrays is None or len(arrays) != len(episodes):
        raise ValueError(f"{name}: one (T,) array an episode, {len(episodes)} in all")
    for i, (array, mask) in enumerate(zip(arrays, masks, strict=True)):
        if np.shape(array) != mask.shape:
            raise ValueError(f"{_name(episodes, i)}: {name} has shape {np.shape(array)}, expected {mask.shape}")
        bad = np.flatnonzero(~np.isfinite(array) & mask)
        if len(bad):
            turn = episodes[i].turn_ids[bad[0]]
            raise ValueError(f"{_name(episodes, i)}: {name} at token {bad[0]} (turn {turn}) is {array[bad[0]]}")
