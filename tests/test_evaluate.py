"""Intervals are what the textbooks say, and comparisons are of like with like."""

import itertools
import math

import numpy as np
import pytest

from cookbook.episode import Episode
from cookbook.evaluate import Evaluation, bootstrap_over_seeds, compare, pass_at, wilson
from cookbook.tasks import Task, TaskSet, check_disjoint


def evaluation(ends):
    return Evaluation(
        [
            Episode(Task("t", f"g/{i}", i), [1, 2], [-1, 0], [0.0, 0.0], [0.0], ["x"], ["y"], "z", end, {})
            for i, end in enumerate(ends)
        ]
    )


def test_wilson_is_the_published_interval():
    # Newcombe 1998, table I, method 3: 81 of 263, and the extremes 0 of 20 and 1 of 29
    for (k, n), expected in {(81, 263): (0.2553, 0.3662), (0, 20): (0.0, 0.1611), (1, 29): (0.0061, 0.1718)}.items():
        assert wilson(k, n) == pytest.approx(expected, abs=1e-4)
    for bad in ((1, 0), (3, 2), (-1, 5)):
        with pytest.raises(ValueError, match="wilson"):
            wilson(*bad)


def test_a_dead_environment_counts_neither_way():
    found = evaluation(["won", "env_error", "turn_limit", "lost"])
    assert (found.success, found.errors) == (1 / 3, 1)
    assert found.interval == wilson(1, 3)
    assert found.flat("x", "_greedy").keys() == {"x_success_greedy", "x_success_greedy_low", "x_success_greedy_high"}


def test_paired_comparison_counts_gains_and_losses():
    one = evaluation(["won"] * 3 + ["lost"] * 9 + ["env_error"])
    two = evaluation(["lost"] + ["won"] * 10 + ["lost", "won"])
    paired = compare(one, two)
    assert (paired.gained, paired.lost, paired.difference) == (8, 1, pytest.approx(7 / 12))
    # exact: 9 games changed; as uneven or more: 1 or 0 of 9, both sides
    assert paired.p_value == pytest.approx(2 * (math.comb(9, 0) + math.comb(9, 1)) / 2**9)
    assert paired.low < paired.difference < paired.high
    same = compare(one, one)
    assert (same.difference, same.p_value) == (0.0, 1.0)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (3, 0), (4, 2), (3, 3), (0, 6)])
def test_the_p_value_counts_every_way_the_changed_games_could_have_fallen(gained, lost):
    # catches: one-sided tails, the games that did not change counted in
    one = evaluation(["lost"] * gained + ["won"] * lost + ["won", "lost", "turn_limit"])
    two = evaluation(["won"] * gained + ["lost"] * lost + ["won", "lost", "context_limit"])
    falls = list(itertools.product((1, -1), repeat=gained + lost))
    as_uneven = [abs(sum(fall)) >= abs(gained - lost) for fall in falls]
    paired = compare(one, two)
    assert (paired.gained, paired.lost) == (gained, lost)
    assert paired.p_value == pytest.approx(sum(as_uneven) / len(falls))


def cumulative(values, x):
    """The shares of values at most x, and below x."""
    return np.mean(np.array(values) <= x + 1e-9), np.mean(np.array(values) < x - 1e-9)


def test_the_paired_interval_is_that_of_every_resample():
    # catches: an interval of the wins and not of the change, quantiles of another level
    one, two = evaluation(["lost"] * 3 + ["won"] * 3), evaluation(["won", "won", "lost", "won", "lost", "won"])
    change = [1, 1, 0, 0, -1, 0]
    every = [sum(resample) / 6 for resample in itertools.product(change, repeat=6)]
    paired = compare(one, two)
    for edge, level in ((paired.low, 0.025), (paired.high, 0.975)):
        at_most, below = cumulative(every, edge)
        assert below - 0.006 <= level <= at_most + 0.006  # 10,000 draws of the 46,656


def test_the_interval_over_seeds_is_that_of_every_resample():
    # catches: tasks drawn apart for each seed, seeds not drawn
    wins = np.array([[1, 1, 0], [0, 1, 0]])
    every = [
        wins[list(seeds)][:, list(tasks)].mean()
        for seeds in itertools.product(range(2), repeat=2)
        for tasks in itertools.product(range(3), repeat=3)
    ]
    mean, low, high = bootstrap_over_seeds(wins)
    assert mean == pytest.approx(np.mean(every)) == 0.5
    for edge, level in ((low, 0.025), (high, 0.975)):
        at_most, below = cumulative(every, edge)
        assert below - 0.01 <= level <= at_most + 0.01


def test_without_a_played_game_there_is_no_rate():
    dead = evaluation(["env_error"] * 2)
    with pytest.raises(ValueError, match="of 2 environments none lived"):
        _ = dead.success
    with pytest.raises(ValueError, match="nothing to compare"):
        compare(dead, evaluation(["won", "lost"]))


def test_success_within_some_turns_counts_only_the_games_won_by_then():
    slow = Episode(
        Task("t", "g/9", 9), [1, 2, 1, 2], [-1, 0, -1, 1], [0.0] * 4, [0.0] * 2, ["x"] * 2, ["y"] * 2, "z", "won", {}
    )
    found = Evaluation([*evaluation(["won", "lost", "env_error"]).episodes, slow])
    assert [found.success_within(turns) for turns in (0, 1, 2)] == [0, 1 / 3, 2 / 3]
    assert found.success_within(2) == found.success


def test_other_tasks_or_another_order_cannot_be_paired():
    one = evaluation(["won", "lost"])
    with pytest.raises(ValueError, match="same tasks"):
        compare(one, Evaluation(one.episodes[::-1]))


def test_pass_at_k_is_the_mean_over_all_choices_of_k_tries():
    wins = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 1]])
    brute = np.mean([[wins[list(c), t].any() for c in itertools.combinations(range(4), 2)] for t in range(3)])
    assert pass_at(wins, 2) == pytest.approx(brute)
    assert pass_at(wins, 1) == pytest.approx(wins.mean())
    assert pass_at(wins, 4) == pytest.approx(2 / 3)
    for k in (0, 5):
        with pytest.raises(ValueError, match=f"pass@{k}"):
            pass_at(wins, k)


def test_seeds_widen_an_interval_that_tasks_alone_would_make_narrow():
    # catches: episodes counted as runs
    wins = np.vstack([np.ones((2, 200)), np.zeros((1, 200))])
    mean, low, high = bootstrap_over_seeds(wins)
    assert mean == pytest.approx(2 / 3)
    assert high - low > 0.6


def test_task_sets_mix_by_weight_without_repeats_and_refuse_overlap():
    one, two = (TaskSet(Task(name, f"{name}/{i}", i) for i in range(20)) for name in "ab")
    mixed = TaskSet.mix([one, two], [3, 1], 12, seed=0)
    assert sorted(task.env for task in mixed) == ["a"] * 9 + ["b"] * 3
    assert len(set(mixed)) == 12
    assert list(TaskSet.mix([one, two], [3, 1], 12, seed=0)) == list(mixed)
    with pytest.raises(ValueError, match="a/3 is in both train and test"):
        check_disjoint(train=one, test=one[3:4])
    with pytest.raises(ValueError, match="20 tasks"):
        one.take(21)


def test_task_sets_save_and_load_equal(tmp_path):
    tasks = TaskSet([Task("textworld", "w2/1", 1, {"rooms": 2}, "test")])
    tasks.save(tmp_path / "tasks.jsonl")
    assert list(TaskSet.load(tmp_path / "tasks.jsonl")) == list(tasks)
