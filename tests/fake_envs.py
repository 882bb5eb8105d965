"""Environments that misbehave on command, for tests of what must survive them."""

import os
import signal
import sys
import time
from typing import ClassVar


class Moody:
    """Echoes. Says "crash": its process dies. "hang": it never answers. "raise", "leave": it raises."""

    in_process = False

    def __init__(self, turn_limit=12, reveal=False, goodbye="", last_words=""):
        self.turn_limit, self.goodbye, self.last_words = turn_limit, goodbye, last_words

    def reset(self, task):
        if task.knobs.get("bad"):
            self._act(task.knobs["bad"])
        self.turn = 0
        return f"hello {task.seed}", self._info()

    def step(self, command):
        self._act(command)
        self.turn += 1
        print("noise on stdout", flush=True)
        return command, 0.0, False, self.turn >= self.turn_limit, self._info()

    def close(self):
        self._act(self.last_words)
        if self.goodbye:
            with open(self.goodbye, "a") as out:
                out.write("closed\n")

    def _act(self, command):
        if command == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if command == "hang":
            time.sleep(1_000)
        if command == "raise":
            raise KeyError("no such thing")
        if command == "leave":
            sys.exit(3)
        if command == "exit":
            os._exit(7)
        if command == "torch":
            raise ValueError(f"torch imported: {'torch' in sys.modules}")

    def _info(self):
        return {
            "won": False,
            "lost": False,
            "score": 0,
            "max_score": 1,
            "objective": "echo",
            "signals": {"pid": float(os.getpid())},
        }


class MoodyHere(Moody):
    in_process = True


class Warmed(Moody):
    """Fills a cache from the first task of a kind, or dies or hangs of it."""

    cache: ClassVar[list] = []

    @staticmethod
    def warm(task):
        Moody()._act(task.knobs["warm"])
        Warmed.cache.append(os.getpid())

    def reset(self, task):
        return str(self.cache), {}


class Old(Moody):
    """The four values of the old Gym."""

    def step(self, command):
        return super().step(command)[:4]


class OldHere(Old):
    in_process = True


class Plain:
    """Says nothing about in_process."""

    def reset(self, task):
        return str(os.getpid()), {}

    def close(self):
        pass


def pid_of(item):
    return os.getpid()


def sleep(seconds):
    time.sleep(seconds)
    return os.getpid()


def variable(name):
    return os.environ.get(name), os.getcwd()


def square(x):
    if x == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    if x == 5:
        raise ValueError("five")
    return x * x
