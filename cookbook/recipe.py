"""Recipe: a whole run as one frozen config, and the command that runs notebook 40 with it.

In:  settings.     Out: runs/40_recipe/: the executed notebook, an HTML page, figures, the log of training.
Leaves out: the steps themselves; the notebook shows them one by one.
Taught in: notebooks/40_recipe.ipynb
"""

import hashlib
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cookbook.envs.textworld.games import SEEDS, Config
from cookbook.settings import RLSettings


@dataclass(frozen=True)
class Recipe:
    """Environment, prior, algorithm, reward, curriculum. The dials were chosen on validation games only."""

    model: str = "tiny"
    """tiny, a folder, or any causal LM that transformers loads"""
    easier: str = "w2-o3-q2"
    """where RL begins"""
    game: str = "w2-o3-q4"
    """what is to be learnt"""
    harder: str = "w4-o6-q8"
    """what is only tested, with twice the turns"""
    demos: int = 20
    """oracle demonstrations of `game`"""
    sft_epochs: int = 4
    """passes over the demonstrations"""
    sft_learning_rate: float = 1e-3
    """AdamW on the policy's adapter"""
    easy_iterations: int = 3
    """RL iterations on `easier`, before those on `game`"""
    train_games: int = 600
    """distinct games of `game` that RL plays"""
    eval_games: int = 100
    """held-out games a test"""
    seed: int = 0
    """of everything"""
    rl: RLSettings = field(default_factory=RLSettings)
    """how PPO runs"""

    def __post_init__(self):
        for name in ("easier", "game", "harder"):
            Config.parse(getattr(self, name))
        limits = {
            "demos": (1, len(SEEDS["sft"])), "sft_epochs": (1, 1_000), "easy_iterations": (0, 10_000),
            "train_games": (1, len(SEEDS["train"])), "eval_games": (1, len(SEEDS["test"])), "seed": (0, 2**31),
        }  # fmt: skip
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ValueError(f"{name}={value!r}: a whole number from {low} to {high}")
        if not isinstance(self.sft_learning_rate, int | float) or not 0 <= self.sft_learning_rate < 1:
            raise ValueError(f"sft_learning_rate={self.sft_learning_rate!r}: a number from 0 to 1")

    def key(self) -> str:
        """Eight characters that differ when any setting does."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]


def run_recipe(overrides: list[tuple[str, str]], profile: str = "fast") -> None:
    """Run notebook 40 through papermill into runs/, print base / SFT / RL and where the page is.

    Raises ValueError for a parameter that the notebook does not have, before anything starts.
    """
    from cookbook.nbtools.cells import declared_parameters, read, read_results
    from cookbook.nbtools.export import export
    from cookbook.nbtools.index import load_index
    from cookbook.nbtools.parameters import parse_value
    from cookbook.nbtools.run import NotebookFailed, execute

    entry = load_index()["40"]
    if profile not in entry.profiles:
        raise ValueError(f"no profile {profile!r}: use one of {', '.join(entry.profiles)}")
    declared = declared_parameters(read(entry.path))
    parameters = entry.profiles[profile] | {name: parse_value(text, declared.get(name, "")) for name, text in overrides}
    folder = Path("runs") / "40_recipe"
    os.environ.setdefault("OMP_NUM_THREADS", str(min(4, os.cpu_count() or 1)))  # of the kernel; more does not pay here
    start = time.time()
    try:
        nb = execute(entry.path, folder / "40_recipe.ipynb", parameters, profile=profile, cwd=Path.cwd())
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on from the last finished iteration")
    except NotebookFailed as error:
        sys.exit(f"\n{error}")
    page, *figures = export(folder / "40_recipe.ipynb", folder)
    print("\n" + summary(read_results(nb)))
    print(f"\n{(time.time() - start) / 60:.1f} minutes. Page: {page}   Figures: {', '.join(f.name for f in figures)}")
    print(
        'Next: another seed, make recipe ARGS="-p seed 1"; or play a game yourself, .venv/bin/python -m cookbook play'
    )


def summary(results: dict) -> str:
    """base / SFT / RL with intervals, as a small table."""
    lines = [f"{'share of held-out games won':<32}{'sampled':<24}greedy"]
    for stage in ("base", "sft", "rl"):
        cells = [
            "{:.2f} [{:.2f}, {:.2f}]".format(
                *(results[f"{stage}_success{kind}{edge}"] for edge in ("", "_low", "_high"))
            )
            for kind in ("", "_greedy")
        ]
        lines.append(f"{stage:<32}{cells[0]:<24}{cells[1]}")
    return "\n".join(lines)
