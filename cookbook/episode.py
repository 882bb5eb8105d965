"""Episode: the record that flows through everything.

In:  what the rollout engine saw, token by token and turn by turn.     Out: a checked record, and JSON lines.
Leaves out: what a turn is worth (rewards.py) and which token earned it (credit.py).
Taught in: notebooks/00_tour.ipynb
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cookbook.tasks import Task

ENDS = ("won", "lost", "turn_limit", "context_limit", "env_error")
TOLD = -1  # turn_id of a token that the policy was told, not one that it wrote


@dataclass
class Episode:
    """One played game. Token ids are kept as they were sampled; nothing is ever decoded and encoded again.

    Raises ValueError from `__post_init__` when parts do not fit together.
    """

    task: Task
    token_ids: list[int]
    """the whole conversation, prompt first   (T,)"""
    turn_ids: list[int]
    """TOLD for what the policy was told, t for tokens it wrote in turn t   (T,)"""
    logprobs: list[float]
    """of the sampling distribution, temperature included; 0 where the policy was told   (T,)"""
    rewards: list[float]
    """one a turn, as the environment paid it   (turns,)"""
    commands: list[str]
    """what the policy said   (turns,)"""
    observations: list[str]
    """what it saw before it said so   (turns,)"""
    final_observation: str
    """what the last command led to; "" if the environment died"""
    end: str
    """one of ENDS"""
    signals: dict[str, list[float]] = field(default_factory=dict)
    """one value a turn, after the command: score, ...; and `<name>_start` with one value, before the first"""
    info: dict[str, Any] = field(default_factory=dict)
    """facts for the reader: temperature, error text, initial plan; never read by rewards or credit"""

    def __post_init__(self):
        turns, tokens = len(self.commands), len(self.token_ids)
        if self.end not in ENDS:
            raise ValueError(f"episode {self.task.id}: end={self.end!r} is none of {ENDS}")
        for name in ("turn_ids", "logprobs"):
            if len(getattr(self, name)) != tokens:
                raise ValueError(f"episode {self.task.id}: {len(getattr(self, name))} {name} for {tokens} token_ids")
        for name, values in {"rewards": self.rewards, "observations": self.observations, **self.signals}.items():
            expected = 1 if name.endswith("_start") else turns
            if len(values) != expected:
                raise ValueError(f"episode {self.task.id}: {len(values)} values in {name}, expected {expected}")
        written = [t for t in self.turn_ids if t != TOLD]
        if written != sorted(written) or set(written) != set(range(turns)):
            raise ValueError(
                f"episode {self.task.id}: turn_ids name turns {sorted(set(written))}, commands are {turns}"
            )
        if tokens and self.turn_ids[0] != TOLD:
            raise ValueError(f"episode {self.task.id}: the first token must be one the policy was told")
        for i, (turn, logprob) in enumerate(zip(self.turn_ids, self.logprobs, strict=True)):
            if not math.isfinite(logprob) or logprob > 1e-4 or (turn == TOLD and logprob != 0):
                raise ValueError(f"episode {self.task.id}: logprob {logprob} at token {i} (turn_id {turn})")

    @property
    def won(self) -> bool:
        """Whether the task was solved. An episode that merely ended is not won."""
        return self.end == "won"

    @property
    def turns(self) -> int:
        """How many commands the policy gave."""
        return len(self.commands)

    @property
    def prompt_length(self) -> int:
        """How many tokens come before the first one the policy wrote."""
        return next((i for i, t in enumerate(self.turn_ids) if t != TOLD), len(self.turn_ids))

    def to_json(self) -> dict[str, Any]:
        """A dict that `json.dumps` takes and `from_json` gives back equal."""
        return asdict(self)

    @staticmethod
    def from_json(row: dict[str, Any]) -> "Episode":
        """The episode of a row made by `to_json`."""
        return Episode(**{**row, "task": Task.from_json(row["task"])})


def save_episodes(episodes: Iterable[Episode], path: str | Path) -> None:
    """One episode a line, JSON."""
    with open(path, "w") as out:
        out.writelines(json.dumps(episode.to_json()) + "\n" for episode in episodes)


def load_episodes(path: str | Path) -> list[Episode]:
    """What `save_episodes` wrote. Raises ValueError naming the file and line that cannot be read."""
    episodes = []
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                episodes.append(Episode.from_json(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not an episode ({error})") from error
    return episodes
