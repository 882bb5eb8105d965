"""Env: the contract of every environment, Gymnasium's shape over strings."""

from typing import Any, Protocol

from cookbook.tasks import Task


class Env(Protocol):
    """`info` always has won, lost, score, max_score, objective and signals (numbers by name, recorded each turn);
    on request (`reveal=True`) admissible and plan, for demos, tests and the viewer, never for the prompt.
    """

    in_process: bool
    """whether it is pure Python, cheap and safe enough to be stepped in the trainer's own process; False if not said"""

    def reset(self, task: Task) -> tuple[str, dict[str, Any]]:
        """The task's starting state: observation, info."""

    def step(self, command: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One command: observation, reward, terminated, truncated, info. `terminated` is not `won`."""

    def close(self) -> None:
        """Free everything; safe to call twice. In a process of its own it has two seconds, and none if a call hangs."""
