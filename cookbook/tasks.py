"""Tasks: frozen rows, enough to rebuild the same starting state anywhere.

In:  environment name, knobs, seeds.     Out: Task, TaskSet.
Leaves out: how a game is built from its row; see envs/.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any


@dataclass(frozen=True)
class Task:
    """One starting state."""

    env: str
    """which environment builds it: "textworld", "probe", ..."""
    id: str
    """unique within the environment, readable: "w2-o3-q4/30001" """
    seed: int
    """what the environment's generator is seeded with"""
    knobs: dict[str, Any] = field(default_factory=dict)
    """what the environment's generator is set to; JSON values only"""
    split: str = ""
    """train | sft | val | test | pretrain"""

    def __hash__(self) -> int:
        return hash((self.env, self.id))

    def to_json(self) -> dict[str, Any]:
        """A dict that `json.dumps` takes and `Task.from_json` gives back equal."""
        return asdict(self)

    @staticmethod
    def from_json(row: dict[str, Any]) -> "Task":
        """The task of a row made by `to_json`."""
        return Task(**row)


class TaskSet(Sequence[Task]):
    """An ordered list of tasks; every method gives a new one."""

    def __init__(self, tasks: Iterable[Task]):
        self._tasks = tuple(tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index):
        found = self._tasks[index]
        return TaskSet(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def __add__(self, other: "TaskSet") -> "TaskSet":
        return TaskSet([*self, *other])

    def __repr__(self) -> str:
        return (
            f"TaskSet({len(self)} tasks: {', '.join(task.id for task in self[:3])}{', ...' if len(self) > 3 else ''})"
        )

    def take(self, n: int) -> "TaskSet":
        """The first n tasks. Raises ValueError when there are fewer."""
        if not 0 <= n <= len(self):
            raise ValueError(f"take({n}): the set has {len(self)} tasks")
        return self[:n]

    def shuffle(self, seed: int) -> "TaskSet":
        """The same tasks in an order that depends on the seed alone."""
        return TaskSet(Random(f"shuffle-{seed}").sample(self._tasks, len(self)))

    def split(self, name: str) -> "TaskSet":
        """Only the tasks of one split."""
        return TaskSet(task for task in self if task.split == name)

    @staticmethod
    def mix(sets: Sequence["TaskSet"], weights: Sequence[float], n: int, seed: int) -> "TaskSet":
        """n tasks, each set's share as its weight, without repeats, shuffled.

        Raises ValueError when the weights do not fit the sets or a set is too small for its share.
        """
        if len(sets) != len(weights) or min(weights) < 0 or sum(weights) <= 0:
            raise ValueError(
                f"mix: {len(sets)} sets, weights {list(weights)}: one weight of 0 or more a set, not all 0"
            )
        edges = [round(n * sum(weights[:i]) / sum(weights)) for i in range(len(sets) + 1)]
        parts = [s.shuffle(seed).take(b - a) for s, a, b in zip(sets, edges, edges[1:], strict=False)]
        return TaskSet(task for part in parts for task in part).shuffle(seed)

    def save(self, path) -> None:
        """One task a line, JSON."""
        with open(path, "w") as out:
            out.writelines(json.dumps(task.to_json()) + "\n" for task in self)

    @staticmethod
    def load(path) -> "TaskSet":
        """What `save` wrote."""
        with open(path) as lines:
            return TaskSet(Task.from_json(json.loads(line)) for line in lines)


def check_disjoint(**sets: TaskSet) -> None:
    """Raises ValueError naming the first task that two of the sets share."""
    seen: dict[Task, str] = {}
    for name, tasks in sets.items():
        for task in tasks:
            if seen.setdefault(task, name) != name:
                raise ValueError(f"task {task.id} is in both {seen[task]} and {name}: splits must not share a game")
