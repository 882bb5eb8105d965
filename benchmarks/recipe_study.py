"""The recipe over training seeds, and the controls that keep sharpening from being sold as learning.

    python benchmarks/recipe_study.py seeds 0 1 2        notebook 40 a seed -> data/studies/recipe.csv
    python benchmarks/recipe_study.py controls           prior at its best temperature, more demos, pass@16
    python benchmarks/recipe_study.py breaks             learning_rate 0: the claim must fail
    python benchmarks/recipe_study.py card FOLDER        base, SFT and RL of another base model

A row that is there already is not run again. Dials are never chosen here: temperatures are chosen on validation games.
"""

import argparse
import csv
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from cookbook import __version__
from cookbook.chat import Chat
from cookbook.demos import demonstrations
from cookbook.envs.textworld.games import textworld_tasks
from cookbook.evaluate import evaluate, pass_at, wilson
from cookbook.nbtools.cells import read_results
from cookbook.nbtools.index import load_index
from cookbook.nbtools.run import execute
from cookbook.paths import data_dir
from cookbook.policy import Policy, load_model
from cookbook.recipe import Recipe
from cookbook.rollout import Sampling
from cookbook.sft import warm_start

STUDIES = data_dir() / "studies"


def add_row(file: str, row: dict) -> None:
    """Append to a CSV whose columns may grow."""
    path = STUDIES / file
    rows = read_rows(file)
    row |= {"commit": commit(), "version": __version__, "machine": platform.machine(), "threads": threads()}
    columns = list(dict.fromkeys(name for each in [*rows, row] for name in each))
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, columns, restval="")
        writer.writeheader()
        writer.writerows([*rows, row])
    print(row, flush=True)


def read_rows(file: str) -> list[dict]:
    path = STUDIES / file
    if not path.is_file():
        return []
    with open(path, newline="") as lines:
        return list(csv.DictReader(lines))


def commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def threads() -> str:
    return os.environ.get("OMP_NUM_THREADS", "1")


def run_notebook(file: str, **parameters) -> None:
    """Notebook 40 with these parameters; its results and seconds as one row."""
    if any(all(str(row.get(k)) == str(v) for k, v in parameters.items()) for row in read_rows(file)):
        return print(f"{parameters} is in {file} already")
    out = Path("runs") / "study" / ("-".join(f"{k}{Path(str(v)).name}" for k, v in parameters.items()) + ".ipynb")
    start = time.time()
    nb = execute(load_index()["40"].path, out, parameters, profile="study", cwd=Path.cwd(), stream=False)
    add_row(file, {**parameters, **read_results(nb), "seconds": round(time.time() - start)})


def controls() -> None:
    """What could pass for learning and is not: each on the test games, sampled unless it says greedy."""
    import torch

    torch.set_num_threads(int(threads()))
    recipe = Recipe()
    validation, held_out = (textworld_tasks(recipe.game, split, 100) for split in ("val", "test"))

    def prior(demos: int) -> Policy:
        policy = Policy(*load_model(recipe.model), seed=0)
        if demos:
            taught = demonstrations(textworld_tasks(recipe.game, "sft", demos), Chat(policy.tokenizer), 12)
            warm_start(policy, taught, recipe.sft_epochs, recipe.sft_learning_rate, seed=0)
        return policy

    def report(name: str, successes: int, n: int, **more) -> None:
        low, high = wilson(successes, n)
        add_row(
            "recipe_controls.csv", {"control": name, "success": successes / n, "low": low, "high": high, "n": n, **more}
        )

    done = {row["control"] for row in read_rows("recipe_controls.csv")}
    if "sft at its best temperature" not in done:
        policy = prior(recipe.demos)
        tried = {t: evaluate(policy, validation, Sampling(t), 12).success for t in (0.1, 0.3, 0.5, 0.7, 1.0)}
        best = max(tried, key=tried.get)
        found = evaluate(policy, held_out, Sampling(best), 12)
        report(
            "sft at its best temperature",
            sum(e.won for e in found.played),
            len(found.played),
            temperature=best,
            tried=tried,
        )
    if "sft on 100 demos" not in done:
        policy = prior(100)
        for kind, sampling in (("", Sampling(1.0)), (", greedy", Sampling(1.0, greedy=True))):
            found = evaluate(policy, held_out, sampling, 12)
            report(f"sft on 100 demos{kind}", sum(e.won for e in found.played), len(found.played))
    if "base pass@16" not in done:
        policy = prior(0)
        wins = np.array(
            [[e.won for e in evaluate(policy, held_out, Sampling(1.0), 12, seed=s).episodes] for s in range(16)]
        )
        row = {"control": "base pass@16", "success": pass_at(wins, 16), "n": 100, "pass_at_1": pass_at(wins, 1)}
        add_row("recipe_controls.csv", row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["seeds", "controls", "breaks", "card"])
    parser.add_argument("values", nargs="*")
    args = parser.parse_args()
    STUDIES.mkdir(parents=True, exist_ok=True)
    if args.part == "seeds":
        for seed in map(int, args.values or (0, 1, 2)):
            run_notebook("recipe.csv", seed=seed)
    elif args.part == "breaks":
        run_notebook("recipe_breaks.csv", seed=0, learning_rate=0.0)
    elif args.part == "card":
        run_notebook("base_models.csv", model=args.values[0], seed=0)
    else:
        controls()


if __name__ == "__main__":
    sys.exit(main())
