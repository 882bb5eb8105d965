"""The recipe cell of 40_recipe is what the library does."""

import random

import pytest

from cookbook.episode import Episode
from cookbook.nbtools.cells import read, recipe_source, run_recipe
from cookbook.nbtools.index import load_index
from cookbook.rewards import reward_function
from cookbook.tasks import Task


def test_milestones_of_the_notebook_and_of_the_library_agree():
    copied = run_recipe(recipe_source(read(load_index()["40"].path)))["milestone_rewards"]
    draw = random.Random(0)
    for _ in range(200):
        turns, won = draw.randint(1, 8), draw.random() < 0.5
        plan = [float(draw.randint(-1, 6)) for _ in range(turns)]
        episode = Episode(
            Task("textworld", "x/1", 1), [1] + [2] * turns, [-1, *range(turns)], [0.0] * (turns + 1), [0.0] * turns,
            ["look"] * turns, ["room"] * turns, "room", "won" if won else "turn_limit",
            {"plan_left": plan, "plan_left_start": [5.0]},
        )  # fmt: skip
        assert copied(5.0, plan, won) == pytest.approx(reward_function("milestones")(episode))
