"""Demos: tasks -> episodes played by the oracle, in the same tokens as the policy's own.

In:  tasks, a chat.     Out: list[Episode] that warm_start learns from; their logprobs are 0, nobody sampled them.
Leaves out: search; the oracle is the engine's own winning policy, replanned after every command.
Taught in: notebooks/40_recipe.ipynb
"""

from cookbook.chat import Chat
from cookbook.envs.pool import EnvError, EnvPool
from cookbook.episode import Episode
from cookbook.rollout import Sampling, rollout


class OracleBackend:
    """Writes the first command of the plan that the environment reveals; looks like a language model to rollout."""

    def __init__(self, chat: Chat, pool: "RevealingPool"):
        self.chat, self.pool = chat, pool

    def start(self, rows: int) -> None:
        """Every conversation in order."""
        self._rows = [index for index, plan in sorted(self.pool.plans.items())]

    def keep(self, rows: list[int]) -> None:
        """Only these go on."""
        self._rows = [self._rows[row] for row in rows]

    def write(self, chunks, uniforms, caps):
        """The plan's next command for each."""
        turns = []
        for index in self._rows:
            plan = self.pool.plans[index]
            ids = self.chat.command_ids(plan[0] if plan else "look")
            turns.append((ids, [0.0] * len(ids)))
        return turns


class RevealingPool(EnvPool):
    """An EnvPool that remembers the oracle's plan of every episode."""

    def __init__(self, env: str, options: dict):
        super().__init__(env, {**options, "reveal": True})
        self.plans: dict[int, list[str]] = {}

    def reset(self, tasks):
        """Reset, and note the plans."""
        starts = super().reset(tasks)
        self.plans = {i: s.info["plan"] for i, s in enumerate(starts) if not isinstance(s, EnvError)}
        return starts

    def step(self, commands):
        """Step, and note the plans."""
        results = super().step(commands)
        self.plans |= {i: r.info["plan"] for i, r in results.items() if not isinstance(r, EnvError)}
        return results


def demonstrations(tasks, chat: Chat, turn_limit: int, episode_tokens: int = 4_096) -> list[Episode]:
    """One oracle episode a task. Raises ValueError naming the tasks that the oracle does not win in time."""
    tasks = list(tasks)
    if not tasks:
        return []
    with RevealingPool(tasks[0].env, {"turn_limit": turn_limit}) as pool:
        sampling = Sampling(greedy=True, turn_tokens=256, episode_tokens=episode_tokens)
        episodes = rollout(OracleBackend(chat, pool), chat, tasks, sampling, turn_limit, pool=pool)
    failed = [episode.task.id for episode in episodes if not episode.won]
    if failed:
        raise ValueError(f"the oracle does not win {', '.join(failed)} within {turn_limit} turns: choose other seeds")
    return episodes
