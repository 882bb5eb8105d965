"""Probes: five tasks with a known best value, each isolating one thing that a trainer must get right.

In:  a Task with knobs {"probe": name}.     Out: one-word observations, commands "a" or "b".
Leaves out: difficulty. A probe debugs the trainer; it is not a result.
Source: the idea is Andy Jones' "Debugging RL, without the agonizing pain" (2021).
"""

from dataclasses import dataclass
from random import Random

from cookbook.tasks import Task, TaskSet


@dataclass(frozen=True)
class Probe:
    """One probe's facts."""

    turns: int
    """commands an episode"""
    best: float
    """value of the best policy, undiscounted"""
    random: float
    """value of a policy that says a and b equally often"""
    isolates: str
    """what a trainer that fails it gets wrong"""


PROBES = {
    "value": Probe(1, 0.5, 0.5, "the critic: red pays 1 and blue 0, whatever is said"),
    "placement": Probe(3, 1.0, 0.5, "reward placement: turn 1 pays for a; the later turns pay nothing"),
    "between": Probe(2, 1.0, 0.5, "credit across observations: the end pays for turn 1, many told tokens lie between"),
    "memory": Probe(2, 1.0, 0.5, "memory: the last command must repeat the letter shown at the start"),
    "discount": Probe(2, 1.0, 0.55, "discounting: a pays 0.6 and ends, b pays 1 a turn later"),
}


def probe_tasks(name: str, n: int) -> TaskSet:
    """n tasks of a probe. Raises ValueError for an unknown name."""
    if name not in PROBES:
        raise ValueError(f"no probe {name!r}: use one of {', '.join(PROBES)}")
    return TaskSet(Task("probe", f"probe-{name}/{seed}", seed, {"probe": name}, "train") for seed in range(n))


class ProbeEnv:
    """Sees one word. May say anything; what starts with "a" counts as a, what starts with "b" as b, else neither.

    Is paid and ends as PROBES says; won when the episode's pay is the best there is (for "value": on red).
    """

    in_process = True

    def __init__(self, turn_limit: int = 12, reveal: bool = False):
        self.turn_limit, self.reveal = turn_limit, reveal

    def reset(self, task: Task) -> tuple[str, dict]:
        """The first word: red or blue, or the letter to remember."""
        self._name = task.knobs["probe"]
        self._turn, self._paid, self._first = 0, 0.0, ""
        random = Random(f"{self._name}-{task.seed}")
        self._shown = random.choice("ab") if self._name == "memory" else random.choice(("red", "blue"))
        return self._shown, self._info(False)

    def step(self, command: str) -> tuple[str, float, bool, bool, dict]:
        """Pay as PROBES says."""
        said = command.strip()[:1]
        self._turn += 1
        self._first = self._first or said or "-"
        reward = self._reward(said)
        self._paid += reward
        ended = self._turn == PROBES[self._name].turns or (self._name == "discount" and said == "a")
        observation = "wait " * 20 if self._name == "between" else "next"
        won = ended and self._paid >= 1.0
        return (
            observation,
            reward,
            ended,
            not ended and self._turn >= self.turn_limit,
            self._info(won, ended and not won),
        )

    def close(self) -> None:
        """Nothing to free."""

    def _reward(self, said: str) -> float:
        last = self._turn == PROBES[self._name].turns
        match self._name:
            case "value":
                return float(self._shown == "red")
            case "placement":
                return float(self._turn == 1 and said == "a")
            case "between":
                return float(last and self._first == "a")
            case "memory":
                return float(last and said == self._shown)
            case _:
                return 0.6 if self._turn == 1 and said == "a" else float(last and self._first == "b")

    def _info(self, won: bool, lost: bool = False) -> dict:
        info = {"won": won, "lost": lost, "score": self._paid, "max_score": 1.0, "objective": "say a or b"}
        return info | {"signals": {"score": self._paid, "max_score": 1.0}}
