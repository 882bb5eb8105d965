"""The recipe cell of 00_tour is what the library does."""

import numpy as np

from cookbook.credit import token_gae
from cookbook.nbtools.cells import read, recipe_source, run_recipe
from cookbook.nbtools.index import load_index


def test_gae_over_turns_of_the_notebook_and_of_the_library_agree():
    copied = run_recipe(recipe_source(read(load_index()["00"].path)))["gae_over_turns"]
    random = np.random.default_rng(0)
    for _ in range(100):
        n = int(random.integers(1, 30))
        wrote = random.random(n) < 0.4
        rewards, values = random.normal(size=n) * wrote, random.normal(size=n) * wrote
        gamma, lam = random.random(2)
        np.testing.assert_allclose(
            copied(rewards, values, wrote, gamma, lam), token_gae(rewards, values, wrote, gamma, lam)[0]
        )
