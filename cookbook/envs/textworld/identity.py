"""Identity: a game's map, quest and goal with names and compass abstracted.

In:  tasks.     Out: a short hash; games that share it differ only in names, in prose and in which way is north.
Why: test games with other seeds may still be old games under new names; success is reported on both kinds.
Source: colour refinement (Weisfeiler & Leman 1968) over the game's facts.
"""

import json
import re
from collections.abc import Iterable
from hashlib import sha256

from cookbook.envs.textworld.games import make_game
from cookbook.tasks import Task

ROUNDS = 4
COMPASS = re.compile(r"\b(north|east|south|west)\b")


def structure(task: Task) -> str:
    """The hash of a task's game, which is made first if need be."""
    return game_structure(json.loads(make_game(task).with_suffix(".json").read_text()))


def game_structure(game: dict) -> str:
    """The hash of a game as TextWorld's JSON describes it."""
    facts = [(_abstract(fact["name"]), [a["name"] for a in fact["arguments"]]) for fact in game["world"]]
    names = {mark: row["name"] for mark, row in game["infos"] if row.get("name")}
    labels = {a["name"]: a["type"] for fact in game["world"] for a in fact["arguments"]}
    for _ in range(ROUNDS):
        labels = {mark: _hash(label, _neighbourhood(mark, facts, labels)) for mark, label in labels.items()}
    quests = sorted(_quest(quest["commands"], names, labels) for quest in game["quests"])
    return _hash(sorted(labels.values()), quests)


def seen_before(train: Iterable[Task], test: Iterable[Task]) -> list[bool]:
    """For every test task, whether a game of its structure is among the training tasks."""
    known = {structure(task) for task in train}
    return [structure(task) in known for task in test]


def _abstract(predicate: str) -> str:
    return COMPASS.sub("compass", predicate.replace("_", " "))


def _neighbourhood(mark: str, facts: list[tuple[str, list[str]]], labels: dict[str, str]) -> list:
    """Every fact that names this entity: the predicate, its place in it, the others' labels."""
    return sorted(
        (predicate, place, [labels[other] for other in arguments if other != mark])
        for predicate, arguments in facts
        for place, argument in enumerate(arguments)
        if argument == mark
    )


def _quest(commands: list[str], names: dict[str, str], labels: dict[str, str]) -> list[str]:
    """The quest's commands with labels for names, and directions numbered as they come."""
    by_name = {name.lower(): labels.get(mark, mark) for mark, name in names.items()}
    words = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    directions: dict[str, str] = {}
    out = []
    for command in commands:
        text = (
            re.sub(rf"\b(?:{words})\b", lambda m: by_name[m[0].lower()], command, flags=re.IGNORECASE)
            if words
            else command
        )
        out.append(COMPASS.sub(lambda m: directions.setdefault(m[0], f"way {len(directions)}"), text))
    return out


def _hash(*parts) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()[:12]
