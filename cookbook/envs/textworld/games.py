"""Games: knobs and a seed -> a compiled TextWorld game on disk.

In:  a configuration name ("w2-o3-q4", "tw-simple-dense") and a seed.     Out: paths of NAME.z8 and NAME.json.
Leaves out: playing them; see env.py. Shipping them; see packs.py.
Source: Côté et al. 2018 (TextWorld); the options are those of its `tw-make custom` and `tw-make tw-simple`.
Taught in: notebooks/10_textworld.ipynb
"""

import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cookbook.envs.textworld.packs import pack_path, unpack
from cookbook.paths import cache_dir
from cookbook.tasks import Task, TaskSet

SEEDS = {  # the paper's ranges for train, sft and test; no two overlap
    "train": range(30_001, 35_001),
    "sft": range(40_001, 40_101),
    "val": range(50_001, 50_101),
    "test": range(1, 101),
    "pretrain": range(100_001, 200_001),
}
PAPER_CONFIGS = ("w2-o3-q4", "w8-o3-q4", "w2-o12-q4", "w8-o12-q4", "w4-o6-q8")
DENSITIES = ("sparse", "balanced", "dense")


class GameError(RuntimeError):
    """A game could not be made or opened; the message names the game and why."""


@dataclass(frozen=True)
class Config:
    """The knobs of one family of games."""

    name: str
    knobs: dict

    @staticmethod
    def parse(name: str) -> "Config":
        """ "w2-o3-q4" -> rooms, objects, quest length; "tw-simple-dense" -> reward density.

        Raises ValueError that names the value and the two forms.
        """
        custom = re.fullmatch(r"w(\d+)-o(\d+)-q(\d+)", name)
        if custom and all(int(knob) > 0 for knob in custom.groups()):
            rooms, objects, quest_length = map(int, custom.groups())
            return Config(name, {"rooms": rooms, "objects": objects, "quest_length": quest_length})
        simple = re.fullmatch(r"tw-simple-(\w+)", name)
        if simple and simple[1] in DENSITIES:
            return Config(name, {"density": simple[1]})
        raise ValueError(
            f"no TextWorld configuration {name!r}: use wX-oY-qZ with numbers above 0 (rooms, objects, quest length),"
            f" or tw-simple-DENSITY with one of {', '.join(DENSITIES)}"
        )


def textworld_tasks(name: str, split: str, n: int | None = None) -> TaskSet:
    """The first n tasks of a split (all of it by default), in seed order.

    Raises ValueError for an unknown configuration or split, or an n that the split does not have.
    """
    config = Config.parse(name)
    if split not in SEEDS:
        raise ValueError(f"no split {split!r}: use one of {', '.join(SEEDS)}")
    seeds = SEEDS[split]
    n = len(seeds) if n is None else n
    if not 0 <= n <= len(seeds):
        raise ValueError(f"n={n}: split {split!r} of {name} has {len(seeds)} games")
    return TaskSet(Task("textworld", f"{name}/{seed}", seed, config.knobs, split) for seed in seeds[:n])


def game_path(task: Task) -> Path:
    """Where the compiled game lies, or will lie, in the cache; the .json is beside it."""
    import textworld

    name = task.id.split("/")[0]
    return cache_dir() / "games" / f"textworld-{textworld.__version__}" / name / f"{task.seed}.z8"


def build(knobs: dict, seed: int, options):
    """The game object, before it is compiled, with exactly the options of `tw-make`."""
    import textworld
    from textworld.challenges.tw_simple import simple

    options.seeds = seed
    if "density" in knobs:
        settings = {"rewards": knobs["density"], "goal": knobs.get("goal", "detailed"), "test": False}
        return simple.make(settings, options)
    options.nb_rooms = knobs["rooms"]
    options.nb_objects = knobs["objects"]
    options.nb_parallel_quests = 1
    chaining = options.chaining
    chaining.min_breadth, chaining.max_breadth = 1, 5
    chaining.min_depth = 1
    chaining.min_length = chaining.max_length = chaining.max_depth = knobs["quest_length"]
    return textworld.generator.make_game(options)


def make_game(task: Task) -> Path:
    """The compiled game: from the cache, else from a shipped pack, else made and compiled here (0.5 to 4 s).

    Raises GameError with TextWorld's own words when no such game can be made, ValueError for an unreadable pack.
    """
    path, pack = game_path(task), pack_path(task)
    if not is_made(path) and pack.is_file():
        unpack(pack, path.parent)
    if not is_made(path):
        _compile(task, path)
    return path


def is_made(path: Path) -> bool:
    """Whether both files of a game are there."""
    return path.is_file() and path.with_suffix(".json").is_file()


def prepare_games(tasks, workers: int = 2) -> None:
    """Make every game that is missing, in parallel, with a progress bar; then playing waits for nothing.

    Raises GameError listing the games that could not be made, after all others were.
    """
    from cookbook.envs.pool import map_clean

    missing = [task for task in tasks if not is_made(game_path(task))]
    for pack in {pack_path(task): game_path(task).parent for task in missing}.items():
        if pack[0].is_file():
            unpack(*pack)
    missing = [task for task in missing if not is_made(game_path(task))]
    failed = []
    if missing:
        made = map_clean("cookbook.envs.textworld.games:make_game", missing, workers, progress="making games")
        failed = [str(result) for _, result in made if isinstance(result, Exception)]
    if failed:
        raise GameError(f"{len(failed)} of {len(missing)} games could not be made: {'; '.join(failed[:3])}")


def _compile(task: Task, path: Path) -> None:
    import textworld

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        options = textworld.GameOptions()
        options.path = os.path.join(folder, path.name)
        try:
            textworld.generator.compile_game(build(task.knobs, task.seed, options), options)
        except Exception as error:
            raise GameError(f"game {task.id} could not be made: {type(error).__name__}: {error}") from error
        facts = json.loads(Path(folder, path.name).with_suffix(".json").read_text())
        facts["KB"]["text_grammars_path"] = ""  # where this machine keeps TextWorld; nothing that plays a game reads it
        path.with_suffix(".json").write_text(json.dumps(facts))
        shutil.move(Path(folder, path.name), path)
