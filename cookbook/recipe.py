"""Recipe: a whole run as one frozen config.

In:  settings.     Out: Recipe, or an error that names the field.
Leaves out: the steps themselves; the notebook shows them one by one, run_recipe.py runs it.
Taught in: notebooks/40_recipe.ipynb
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field

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
