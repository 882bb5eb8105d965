"""No episode that is not won earns as much as one that is, and nothing can be farmed."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cookbook.credit import grpo, rloo
from cookbook.episode import Episode
from cookbook.rewards import DEDUCTED, REWARDS, UNFINISHED, checked, progress, reward_function
from cookbook.tasks import Task

UNKNOWN = float("nan")
ENDS = ["turn_limit", "lost", "context_limit"]
A_HAIR = 1e-9  # for sums of floats


def episode(plan, scores=None, end="turn_limit", start=5.0, most=3.0, invalid=None):
    turns = len(plan)
    rewards = scores or [0.0] * turns
    return Episode(
        Task("textworld", "g/1", 1), [1] + [2] * turns, [-1, *range(turns)], [0.0] * (turns + 1), list(rewards),
        ["look"] * turns, ["room"] * turns, "room", end,
        {
            "plan_left": [float(p) for p in plan], "plan_left_start": [start], "max_score_start": [most],
            "invalid": invalid or [0.0] * turns,
        },
    )  # fmt: skip


plans = st.lists(st.one_of(st.integers(-1, 8), st.just(UNKNOWN)), min_size=1, max_size=12)


@st.composite
def episodes(draw, ends=ENDS):
    """Anything that can be played: plans lost and found, scores up and down, even beyond the stated maximum."""
    plan = draw(plans)
    n = len(plan)
    scores = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.0, 1.0, 2.0]), min_size=n, max_size=n))
    invalid = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=n, max_size=n))
    start = draw(st.sampled_from([5.0, 1.0, 0.0, -1.0, UNKNOWN]))
    return episode(plan, scores, draw(st.sampled_from(ends)), start, 3.0, invalid)


@settings(max_examples=100, deadline=None)
@given(episodes(), episodes(["won"]))
def test_losing_never_pays_as_much_as_winning(lost, won):
    # catches: done taken for won, a maximum score of 1, a won episode that is paid for its way only
    for name in ("sparse", "dense", "milestones"):
        reward = reward_function(name)
        assert sum(reward(won)) == pytest.approx(1.0)
        assert sum(reward(lost)) <= UNFINISHED + A_HAIR
        assert len(reward(won)) == won.turns


@settings(max_examples=100, deadline=None)
@given(episodes(), episodes(["won"]), st.floats(0, 1), st.floats(0, 1))
def test_costs_and_penalties_never_turn_that_around(lost, won, step_cost, format_penalty):
    for name in ("sparse", "dense", "milestones"):
        reward = reward_function(name, step_cost, format_penalty)
        assert sum(reward(won)) >= 1 - DEDUCTED - A_HAIR > UNFINISHED >= sum(reward(lost)) - A_HAIR


def test_unfinished_dense_that_pays_the_raw_score_would_pay_more_than_a_win():
    # the reference code's fault: nine sub-goals of ten and a lost game earn 9
    lost = episode([3] * 9, [1.0] * 9, "lost", most=10.0)
    assert sum(lost.rewards) == 9
    assert sum(reward_function("dense")(lost)) == pytest.approx(0.45)


@settings(max_examples=100, deadline=None)
@given(plans)
def test_walking_in_circles_earns_nothing_the_second_time(plan):
    once, twice = (sum(reward_function("milestones")(episode(plan * n))) for n in (1, 2))
    assert twice == pytest.approx(once)


@settings(max_examples=60, deadline=None)
@given(plans)
def test_milestones_are_a_slow_look_at_the_smallest_plan_so_far(plan):
    run, known = episode(plan), lambda turns: [5.0] + [p for p in plan[:turns] if p >= 0]
    slow = [0.5 * (min(known(t)) - min(known(t + 1))) / 5 for t in range(len(plan))]
    assert reward_function("milestones")(run) == pytest.approx(slow)
    assert min(slow) >= 0


def test_milestones_by_hand():
    # five steps to go; half of the reward is for the way: 0.1 a step
    assert reward_function("milestones")(episode([4, 4, -1, 2, 3])) == pytest.approx([0.1, 0, 0, 0.2, 0])
    assert reward_function("milestones")(episode([4, UNKNOWN, 3])) == pytest.approx([0.1, 0, 0.1])
    assert reward_function("milestones")(episode([4, 0], end="won")) == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize("start", [-1.0, 0.0, UNKNOWN])
@pytest.mark.parametrize("name", ["milestones", "progress"])
def test_without_a_first_plan_only_winning_pays(name, start):
    assert reward_function(name)(episode([3, 2], start=start)) == [0, 0]
    assert reward_function(name)(episode([3, 0], start=start, end="won")) == [0, 1]


def test_dense_by_hand():
    assert reward_function("dense")(episode([4, 3], [1.0, 1.0])) == pytest.approx([0.5 / 3, 0.5 / 3])
    assert reward_function("dense")(episode([4, 0], [1.0, 2.0], "won")) == pytest.approx([0.5 / 3, 1 - 0.5 / 3])
    # a point that is lost again is taken back; points beyond the maximum are worth nothing
    assert reward_function("dense")(episode([4] * 4, [1.0, -1.0, 3.0, 5.0])) == pytest.approx(
        [0.5 / 3, -0.5 / 3, 0.5, 0]
    )


def test_sparse_pays_the_last_turn_of_a_win():
    assert reward_function("sparse")(episode([4, 0], [9.0, 9.0], end="won")) == [0, 1]
    for end in ENDS:
        assert reward_function("sparse")(episode([4, 0], [9.0, 9.0], end)) == [0, 0]


# --- potential-based shaping


def test_progress_by_hand():
    # potentials -1, -4/5, -4/5 (not known: as before), -2/5, and 0 at the end whatever was left
    shaped = [0.2, 0.0, 0.4, 0.4]
    assert reward_function("progress")(episode([4, -1, 2, 3])) == pytest.approx(shaped)
    assert reward_function("progress")(episode([4, UNKNOWN, 2, 0], end="won")) == pytest.approx([*shaped[:3], 1.4])
    assert progress(episode([4, 2]), gamma_turn=0.5) == pytest.approx([0.5 * -0.8 + 1, 0.8])


@settings(max_examples=60, deadline=None)
@given(episodes([*ENDS, "won"]), st.floats(0, 1))
def test_discounted_progress_adds_the_same_to_every_episode_of_a_task(run, gamma):
    # catches: a potential left at the end of a lost or cut episode, another gamma than the learner's
    start = run.signals["plan_left_start"][0]
    paid, plain = reward_function("progress", gamma_turn=gamma)(run), reward_function("sparse")(run)
    added = sum(gamma**turn * (a - b) for turn, (a, b) in enumerate(zip(paid, plain, strict=True)))
    assert added == pytest.approx(1.0 if start > 0 else 0.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(plans, st.sampled_from([*ENDS, "won"])), min_size=2, max_size=6))
def test_rloo_and_grpo_cannot_see_progress(rows):
    group, same = [episode(plan, end=end) for plan, end in rows], ["g"] * len(rows)
    shaped, plain = ([sum(reward_function(name)(e)) for e in group] for name in ("progress", "sparse"))
    for estimator in (rloo, grpo):
        np.testing.assert_allclose(estimator(shaped, same), estimator(plain, same), atol=1e-6)


def test_a_potential_that_stays_at_the_end_would_be_seen():
    def faulty(run):
        lefts = [run.signals["plan_left_start"][0], *run.signals["plan_left"]]
        return [(a - b) / 5 for a, b in pairwise(lefts)]

    group = [episode([4, 3]), episode([4, 1])]
    assert np.ptp([sum(faulty(e)) for e in group]) > 0.1
    assert np.ptp([sum(progress(e)) for e in group]) < A_HAIR


# The enumerable probe: cells 0, 1, 2, 3 in a row, start at 1, cell 0 loses, cell 3 wins, at most three turns.


def walk(moves):
    cell, cells = 1, []
    for move in moves:
        cell += move
        cells.append(cell)
        if cell in (0, 3):
            break
    end = {0: "lost", 3: "won"}.get(cell, "turn_limit")
    left = [float(3 - c) if c else -1.0 for c in cells]
    return tuple(moves[: len(cells)]), episode(left, end=end, start=2.0)


def values_of_every_plan(reward, gamma):
    """The discounted reward of every way to play the probe."""
    ways = dict(walk([a, b, c]) for a in (1, -1) for b in (1, -1) for c in (1, -1))
    return {way: sum(gamma**t * r for t, r in enumerate(reward(run))) for way, run in ways.items()}


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.5])
def test_progress_leaves_the_order_of_all_plans_of_a_probe_unchanged(gamma):
    plain = values_of_every_plan(reward_function("sparse"), gamma)
    shaped = values_of_every_plan(reward_function("progress", gamma_turn=gamma), gamma)
    assert max(plain, key=plain.get) == max(shaped, key=shaped.get) == (1, 1)
    assert {way: shaped[way] - plain[way] for way in plain} == pytest.approx(dict.fromkeys(plain, 1.0))
    if gamma < 1:  # shaped on another clock than the learner's, it is no constant any more
        other = values_of_every_plan(reward_function("progress", gamma_turn=1.0), gamma)
        assert np.ptp([other[way] - plain[way] for way in plain]) > 0.01


# --- options and refusals


def test_costs_and_penalties_by_hand():
    run = episode([4, 3, 3], invalid=[0.0, 1.0, 0.0])
    assert reward_function("sparse", step_cost=0.1)(run) == pytest.approx([-0.1] * 3)
    assert reward_function("sparse", format_penalty=0.25)(run) == pytest.approx([0, -0.25, 0])
    # the way pays 0.1, 0.1, 0; costs are 0.1, then 0.35 of which 0.3 fit into the 0.4 of an episode, then none
    assert reward_function("milestones", 0.1, 0.25)(run) == pytest.approx([0.0, -0.2, 0.0])


@pytest.mark.parametrize("name", REWARDS)
def test_an_episode_without_a_word_earns_nothing(name):
    assert reward_function(name, step_cost=0.1)(episode([], end="context_limit")) == []


def test_unknown_rewards_are_refused_with_the_choices():
    with pytest.raises(ValueError, match=rf"'niceness'.*{', '.join(REWARDS)}"):
        reward_function("niceness")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sparse", {"step_cost": -0.1}, "step_cost=-0.1"),
        ("sparse", {"format_penalty": UNKNOWN}, "format_penalty=nan"),
        ("progress", {"gamma_turn": 1.5}, "gamma_turn=1.5"),
        ("milestones", {"gamma_turn": 0.9}, "only progress discounts"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(name, options, message):
    with pytest.raises(ValueError, match=message):
        reward_function(name, **options)


def raises(episode):
    return episode.signals["nothing"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raises, "raises raised KeyError: 'nothing'"),
        (lambda e: [1.0], r"gave 1 rewards for 2 turns"),
        (lambda e: 1.0, "raised TypeError"),
        (lambda e: [0.0, UNKNOWN], "gave nan as the reward of turn 1"),
        (lambda e: [math.inf, 0.0], "gave inf as the reward of turn 0"),
        (lambda e: ["good", 0.0], "gave 'good' as the reward of turn 0"),
        (lambda e: [0.0, None], "gave None as the reward of turn 1"),
    ],
)
def test_a_reward_function_that_misbehaves_is_refused_by_episode_and_turn(function, message):
    with pytest.raises(ValueError, match=rf"episode g/1: reward .*{message}"):
        checked(function)(episode([4, 3]))


def test_a_reward_function_of_ones_own_is_left_alone_when_it_behaves():
    assert checked(lambda e: np.array([0.5, 1]))(episode([4, 3])) == [0.5, 1.0]


@pytest.mark.parametrize(
    ("name", "signal"),
    [("dense", "max_score_start"), ("milestones", "plan_left_start"), ("progress", "plan_left_start")],
)
def test_a_signal_that_is_missing_is_named(name, signal):
    run = episode([4, 3])
    del run.signals[signal]
    with pytest.raises(ValueError, match=f"g/1.*no signal '{signal}', only plan_left"):
        reward_function(name)(run)


def test_a_game_without_points_cannot_be_dense():
    with pytest.raises(ValueError, match="max_score_start is 0"):
        reward_function("dense")(episode([4, 3], most=0.0))
