"""Play: games -> transcripts of an undecided player, with names marked so that they can be renewed.

In:  tasks of the pretraining split, the share of episodes that follow the oracle.     Out: Transcripts.
Leaves out: reward; a transcript says what happened, not whether it was good.
Source: renaming entities between episodes is a measured necessity here; see data/models/tiny/README.md.
Taught in: notebooks/90_tiny_base_model.ipynb
"""

import json
import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from random import Random

from cookbook.envs.textworld.env import TextWorldEnv
from cookbook.envs.textworld.games import game_path
from cookbook.tasks import Task

FOLLOW = 0.85  # in a guided episode: the share of turns that follow the oracle
STALE = 0.05  # the share of unguided commands that name something seen earlier, often gone by now
COMPASS = ("north", "east", "south", "west")


@dataclass
class Transcript:
    """One episode as text in which every name is a mark: "\u27e8k_0\u27e9", or "\u27e8a k_0\u27e9" with its article."""

    config: str
    names: dict[str, tuple[str, str]]
    """mark -> (type, name)"""
    pairs: list[tuple[str, str]]
    """(key, lock) marks whose names belong together"""
    objective: str
    observations: list[str]
    commands: list[str]
    won: bool
    guided: bool

    def to_json(self) -> dict:
        """A dict for `json.dumps`."""
        return asdict(self)


def play(job: tuple[Task, int, float]) -> list[dict]:
    """`episodes` episodes of one game, a share of them guided by the oracle; JSON rows of Transcripts."""
    task, episodes, share = job
    random = Random(f"{task.id}-{share}")
    env = TextWorldEnv(turn_limit=24, reveal=True)
    longest = 24 if task.knobs.get("quest_length", 8) > 4 else 12
    rows = [
        _play_once(env, task, random, random.random() < share, random.randint(4, longest)).to_json()
        for _ in range(episodes)
    ]
    env.close()
    return rows


def _play_once(env: TextWorldEnv, task: Task, random: Random, guided: bool, turns: int) -> Transcript:
    observation, info = env.reset(task)
    objective, observations, commands, seen, ended = info["objective"], [observation], [], [], False
    for _ in range(24 if guided else turns):
        plan, admissible = info["plan"], info["admissible"]
        if guided and not plan:
            break
        if guided and random.random() < FOLLOW:
            command = plan[0]
        elif seen and random.random() < STALE:
            command = random.choice(seen)
        else:
            command = random.choice(admissible)
        seen += admissible
        observation, _, ended, truncated, info = env.step(command)
        commands.append(command)
        observations.append(observation)
        if ended or truncated:
            break
    names, pairs = entities(task)
    mark = marker(names)
    return Transcript(
        task.id.split("/")[0], names, pairs, mark(objective), [mark(o) for o in observations],
        [mark(c) for c in commands], bool(info["won"]), guided,
    )  # fmt: skip


def entities(task: Task) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """Names of a game by mark, and which key and lock belong together; read from the game's JSON."""
    game = json.loads(game_path(task).with_suffix(".json").read_text())
    names = {}
    for mark, row in game["infos"]:
        if row.get("name") and mark not in ("P", "I"):
            names[mark] = (row["type"], row["name"])
    pairs = [
        tuple(argument["name"] for argument in fact["arguments"]) for fact in game["world"] if fact["name"] == "match"
    ]
    return names, [pair for pair in pairs if set(pair) <= set(names)]


def marker(names: dict[str, tuple[str, str]]):
    """A function that replaces every name in a text by its mark, longest names first."""
    by_name = {name.lower(): mark for mark, (_, name) in names.items()}
    words = "|".join(re.escape(name) for name in sorted(by_name, key=len, reverse=True))
    pattern = re.compile(rf"\b((?:an?) )?({words})(?!\w)", re.IGNORECASE)
    return lambda text: pattern.sub(lambda m: f"\u27e8{'a ' if m[1] else ''}{by_name[m[2].lower()]}\u27e9", text)


class Names:
    """Every name seen in play, by type, and every key with its lock: what a fresh episode draws from."""

    def __init__(self, transcripts: list[Transcript]):
        singles, pairs = defaultdict(set), defaultdict(set)
        for transcript in transcripts:
            for kind, name in transcript.names.values():
                singles[kind].add(name)
            for key, lock in transcript.pairs:
                pairs[transcript.names[lock][0]].add((transcript.names[key][1], transcript.names[lock][1]))
        self.singles = {kind: sorted(names) for kind, names in singles.items()}
        self.pairs = {kind: sorted(names) for kind, names in pairs.items()}

    def draw(self, transcript: Transcript, random: Random) -> dict[str, str]:
        """A new name for every mark, one to one, of the same type; keys keep matching their locks."""
        chosen: dict[str, str] = {}
        for key, lock in transcript.pairs:
            if key not in chosen and lock not in chosen:
                pairs = self.pairs[transcript.names[lock][0]]
                free = [pair for pair in pairs if not set(pair) & set(chosen.values())]
                chosen[key], chosen[lock] = random.choice(free or pairs)
        for mark, (kind, _) in transcript.names.items():
            if mark not in chosen:
                free = [name for name in self.singles[kind] if name not in chosen.values()]
                chosen[mark] = random.choice(free or self.singles[kind])
        return chosen


def original_names(transcript: Transcript) -> dict[str, str]:
    """The names of the game as it was made."""
    return {mark: name for mark, (_, name) in transcript.names.items()}


def turn_compass(random: Random) -> dict[str, str]:
    """One of the eight rotations and mirrors of north, east, south, west."""
    quarter, mirror = random.randrange(4), random.choice((1, -1))
    return {word: COMPASS[(quarter + mirror * i) % 4] for i, word in enumerate(COMPASS)}


def fill(text: str, names: dict[str, str], compass: dict[str, str]) -> str:
    """A marked text with these names; "a" becomes "an" where the new name wants it."""

    def name(match):
        word = names[match[2]]
        return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}" if match[1] else word

    turned = re.sub(r"\b(north|east|south|west)\b", lambda m: compass[m[0]], text)
    return re.sub(r"\u27e8(a )?(\w+)\u27e9", name, turned)
