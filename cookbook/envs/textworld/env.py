"""TextWorldEnv: one game of Microsoft's TextWorld behind the project's Env contract.

In:  a Task of games.py, then one command a turn.     Out: cleaned text, score increments, won and lost apart.
Leaves out: process isolation; play it through envs/pool.py, since the interpreter is a C library that can crash.
Taught in: notebooks/10_textworld.ipynb
"""

import re

from cookbook.envs.textworld.games import GameError, make_game
from cookbook.tasks import Task

MAX_COMMAND = 200
REFUSAL = "That's not a verb I recognise."
PARSER_ERRORS = (
    "not a verb I recognise",
    "You can't see any such thing",
    "I beg your pardon",
    "I only understood you as far as",
    "I didn't understand",
    "You seem to have said too little",
)
META_VERBS = frozenset(
    [
        "undo",
        "restart",
        "restore",
        "save",
        "quit",
        "q",
        "script",
        "transcript",
        "noscript",
        "verify",
        "version",
        "actions",
        "notify",
    ]
)


class TextWorldEnv:
    """A text game whose objective spells out, in prose, what to do.

    Sees: "You are now in the ROOM.", the room or what the command did, what it carries. Never the admissible commands.
    May say: one command of at most 200 characters. Chains ("go north. take key", "... then ...") and the
        interpreter's own commands (undo, restart, tw-...) are answered as an unknown verb, and still cost the turn.
    Is paid: the increase of the game's score, each turn.
    Ends: won (terminated), lost (terminated), turn limit (truncated).
    Options: `turn_limit`; `reveal` adds `admissible` and `plan` to info, for demos, tests and the viewer only.
    Known exploits, closed: chained commands; meta commands; ending taken for winning.
    """

    in_process = False

    def __init__(self, turn_limit: int = 12, reveal: bool = False):
        if not isinstance(turn_limit, int) or turn_limit < 1:
            raise ValueError(f"turn_limit={turn_limit!r}: a whole number of at least 1")
        self.turn_limit, self.reveal = turn_limit, reveal
        self._engine = None

    @staticmethod
    def warm(task: Task) -> None:
        """Parse the games' logic once, in the process that workers are forked from: 0.2 s a game otherwise."""
        import textworld

        textworld.Game.load(str(make_game(task).with_suffix(".json")))

    def reset(self, task: Task) -> tuple[str, dict]:
        """Open the task's game, made first if it is not in the cache. Raises GameError when it cannot be opened."""
        import textworld

        self.close()
        path = make_game(task)
        wanted = textworld.EnvInfos(
            description=True, inventory=True, score=True, max_score=True, objective=True,
            policy_commands=True, admissible_commands=self.reveal, won=True, lost=True,
        )  # fmt: skip
        try:
            self._engine = textworld.start(str(path), wanted)
            state = self._engine.reset()
        except Exception as error:
            raise GameError(
                f"game {task.id} at {path} could not be opened: {error}; delete it to make it anew"
            ) from error
        self._turn, self._score, self._objective = 0, 0, one_line(state.objective)
        observation = clean(state.description, state.description, state.inventory)
        return observation, self._info(state, won=False, lost=False, invalid=False)

    def step(self, command: str) -> tuple[str, float, bool, bool, dict]:
        """One turn. Raises RuntimeError before `reset`."""
        if self._engine is None:
            raise RuntimeError("step() before reset()")
        self._turn += 1
        accepted = single_command(command)
        if accepted is None:
            state, feedback = self._engine.state, REFUSAL
            won = lost = False
        else:
            state, _, _ = self._engine.step(accepted)
            feedback, won, lost = state.feedback, bool(state.won), bool(state.lost)
        invalid = any(error in feedback for error in PARSER_ERRORS)
        reward, self._score = float(state.score - self._score), state.score
        terminated = won or lost
        observation = clean(feedback, state.description, state.inventory)
        info = self._info(state, won, lost, invalid)
        return observation, reward, terminated, not terminated and self._turn >= self.turn_limit, info

    def close(self) -> None:
        """Free the interpreter; safe to call twice."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _info(self, state, won: bool, lost: bool, invalid: bool) -> dict:
        plan = [] if won else list(state.policy_commands or [])
        plan_left = float(len(plan)) if plan or won else -1.0  # -1: no way to win is known from here
        info = {
            "won": won,
            "lost": lost,
            "score": state.score,
            "max_score": state.max_score,
            "objective": self._objective,
            "signals": {"score": float(state.score), "plan_left": plan_left, "invalid": float(invalid)},
        }
        if self._turn == 0:
            info["signals"]["max_score"] = float(state.max_score)
        if self.reveal:
            info |= {"admissible": list(state.admissible_commands), "plan": plan}
        return info


def single_command(text: str) -> str | None:
    """The command if it is one plain command of the game, else None: chains and interpreter commands are refused."""
    text = text.strip()
    plain = re.fullmatch(r"[A-Za-z0-9' -]+", text) and len(text) <= MAX_COMMAND
    if not plain or re.search(r"\bthen\b", text, re.IGNORECASE):
        return None
    verb = text.split()[0].lower()
    return None if verb in META_VERBS or verb.startswith("tw-") else text


def one_line(text: str) -> str:
    """Runs of white space become one blank."""
    return " ".join(text.split())


def clean(feedback: str, description: str, inventory: str) -> str:
    """The paper's observation: the room's name, what happened, what is carried; no banner, header, prompt or repeat."""
    room = re.search(r"-= (.+?) =-", description)
    lines = [f"You are now in the {room[1].lower()}."] if room else []
    body = re.split(r"\n>|\*\*\* ", feedback)[0]
    body = re.sub(r"-= .+? =-", "", body)
    for paragraph in [*re.split(r"\n+", body), inventory or ""]:
        paragraph = one_line(paragraph)
        if paragraph and paragraph not in lines:
            lines.append(paragraph)
    return " ".join(lines)
