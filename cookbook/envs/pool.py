"""Pool: many environments side by side, one process an episode.

In:  tasks, then commands by index.     Out: results by index; a dying or hanging environment costs its own episode.
A process an episode, forked from a clean nursery, is a few milliseconds and leaves nothing to recycle.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from cookbook.envs import env_class
from cookbook.envs.nursery import load, nursery
from cookbook.tasks import Task


@dataclass(frozen=True)
class Reset:
    """A starting state."""

    observation: str
    info: dict[str, Any]


@dataclass(frozen=True)
class StepResult:
    """What a command led to."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass(frozen=True)
class EnvError:
    """An environment that died, hung or raised; its episode is over."""

    text: str


RESULTS = {"reset": Reset, "step": StepResult}
FAULTS = (Exception, SystemExit)  # what an environment may raise; Ctrl-C goes through
CLOSE_SECONDS = 2  # what an environment in a process of its own may take to close


class _Here:
    """An environment stepped in this process; same calls as _There. A call that hangs cannot be ended."""

    def __init__(self, env: str, options: dict, task: Task):
        self.env, self.options, self.task, self.instance = env, options, task, None

    def send(self, method: str, argument: Any) -> None:
        self.request = (method, argument)

    def receive(self, deadline: float, timeout: float) -> Any:
        method, argument = self.request
        try:
            if self.instance is None:
                self.instance = env_class(self.env)(**self.options)
            return RESULTS[method](*getattr(self.instance, method)(argument))
        except FAULTS as error:
            return EnvError(f"{self.task.id} raised {type(error).__name__}: {error}")

    def close(self) -> None:
        with contextlib.suppress(*FAULTS):
            if self.instance is not None:
                self.instance.close()


class _There:
    """An environment in a process of its own."""

    def __init__(self, env: str, options: dict, task: Task):
        self.task, self.nursery, self.busy = task, nursery(), False
        self.connection, self.pid = self.nursery.fork("cookbook.envs.pool:serve_env", env, options)

    def send(self, method: str, argument: Any) -> None:
        self.busy = True
        with contextlib.suppress(OSError):  # a worker that is gone shows when we listen
            self.connection.send((method, argument))

    def receive(self, deadline: float, timeout: float) -> Any:
        try:
            if not self.connection.poll(max(0.0, deadline - time.monotonic())):
                return EnvError(f"{self.task.id} hung: no answer in {timeout:g} s, its process was killed")
            answer = self.connection.recv()
        except (EOFError, OSError):
            answer = EnvError(f"{self.task.id} died: its process ended {self.nursery.ending(self.pid)}")
        except Exception as error:
            answer = EnvError(f"{self.task.id} gave an answer that cannot be read here: {error}")
        self.busy = False
        return EnvError(f"{self.task.id} {answer}") if isinstance(answer, str) else answer

    def close(self) -> None:
        """Let an idle worker close its environment and go; kill one that is busy."""
        if self.busy:
            kill(self.pid)
        else:
            with contextlib.suppress(OSError):
                self.connection.send(None)
        self.connection.close()


def kill(pid: int) -> None:
    """End a busy worker at once."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def warm_env(env: str, task: Task) -> None:
    """In the nursery: let the environment fill its caches from one task of a kind."""
    env_class(env).warm(task)


def rehearse_warm(connection: Connection, env: str, task: Task) -> None:
    """The same in a worker, which may crash or hang; the nursery may not."""
    warm_env(env, task)
    connection.send(True)


def serve_env(connection: Connection, env: str, options: dict) -> None:
    """A worker: one environment, until the pool says None."""
    instance = None
    with contextlib.suppress(EOFError, OSError):  # the pool has gone
        while request := connection.recv():
            method, argument = request
            try:
                if instance is None:
                    instance = env_class(env)(**options)
                connection.send(RESULTS[method](*getattr(instance, method)(argument)))
            except FAULTS as error:
                connection.send(f"raised {type(error).__name__}: {error}")
    signal.alarm(CLOSE_SECONDS)  # ends this process, whatever the engine is doing
    if instance is not None:
        instance.close()


class EnvPool:
    """Plays a batch of episodes of one environment. A context manager; every way out closes every process."""

    def __init__(self, env: str, options: dict | None = None, call_timeout: float = 30.0, start_timeout: float = 120.0):
        self.workers: dict[int, _Here | _There] = {}
        self.owner = os.getpid()
        if min(call_timeout, start_timeout) <= 0:
            raise ValueError(f"call_timeout={call_timeout}, start_timeout={start_timeout}: seconds, above 0")
        self.env, self.options = env, dict(options or {})
        self.call_timeout, self.start_timeout = call_timeout, start_timeout
        self.kind = _Here if getattr(env_class(env), "in_process", False) else _There

    @property
    def alive(self) -> int:
        """How many episodes are open."""
        return len(self.workers)

    def reset(self, tasks: Iterable[Task]) -> list[Reset | EnvError]:
        """Open one environment a task; those of the batch before are closed."""
        self.close()
        tasks = list(tasks)
        if self.kind is _There and hasattr(env_class(self.env), "warm"):
            for key, task in {f"{self.env} {task.knobs}": task for task in tasks}.items():
                self._warm(key, task)
        self.workers = {index: self.kind(self.env, self.options, task) for index, task in enumerate(tasks)}
        return list(self._ask("reset", dict(enumerate(tasks)), self.start_timeout).values())

    def step(self, commands: dict[int, str]) -> dict[int, StepResult | EnvError]:
        """One command to each of these episodes, all at the same time. Raises ValueError when one is not open."""
        if closed := sorted(commands.keys() - self.workers.keys()):
            raise ValueError(f"step: episodes {closed} are not open")
        return self._ask("step", commands, self.call_timeout)

    def close(self, indices: Iterable[int] | None = None) -> None:
        """Close these episodes, or all."""
        for index in list(self.workers if indices is None else indices):
            if index in self.workers:
                self.workers.pop(index).close()

    def _warm(self, key: str, task: Task) -> None:
        if key in nursery().warmed:
            return
        connection, pid = nursery().fork("cookbook.envs.pool:rehearse_warm", self.env, task)
        with connection, contextlib.suppress(EOFError, OSError):
            if connection.poll(self.start_timeout) and connection.recv():
                return nursery().warm("cookbook.envs.pool:warm_env", key, self.env, task)
        nursery().ending(pid)
        nursery().warmed.add(key)  # its workers go without, and say what is wrong

    def _ask(self, method: str, arguments: dict[int, Any], timeout: float) -> dict[int, Any]:
        try:
            for index, argument in arguments.items():
                self.workers[index].send(method, argument)
            deadline = time.monotonic() + timeout
            answers = {index: self.workers[index].receive(deadline, timeout) for index in arguments}
        except BaseException:  # Ctrl-C: answers on their way would be taken for those to the next commands
            self.close()
            raise
        self.close(index for index, answer in answers.items() if isinstance(answer, EnvError))
        return answers

    def __enter__(self) -> "EnvPool":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def __del__(self):
        if self.owner == os.getpid():  # not in a process that forked off ours
            self.close()


def serve_items(connection: Connection, target: str) -> None:
    """A worker of map_clean: one item after the other, until the connection closes."""
    while True:
        item = connection.recv()
        try:
            connection.send(load(target)(item))
        except Exception as error:
            connection.send(RuntimeError(f"{type(error).__name__}: {error}"))


def map_clean(
    target: str, items: Iterable[Any], workers: int = 2, progress: str | None = None, recycle: int = 50
) -> Iterator[tuple[int, Any]]:
    """(index, result) as they finish, each from a clean process; an item whose worker dies gives an exception.

    target: "module:function". progress: the bar's label, None for no bar. recycle: items a process.
    Leaves out: a time limit. Raises ValueError, when first asked for a result, unless workers and recycle are above 0.
    """
    from tqdm import tqdm  # not tqdm.auto: a notebook with a widget cannot be stored

    if min(workers, recycle) < 1:
        raise ValueError(f"map_clean: workers={workers}, recycle={recycle}: at least 1")
    items = list(items)
    todo = iter(enumerate(items))
    busy: dict[Connection, tuple[int, int, int]] = {}  # connection -> (pid, index of its item, items done)

    def give(connection: Connection | None = None, pid: int = 0, done: int = 0) -> None:
        index, item = next(todo, (None, None))
        if connection is not None and (index is None or done >= recycle):
            connection.close()
        if index is None:
            return
        if connection is None or connection.closed:
            (connection, pid), done = nursery().fork("cookbook.envs.pool:serve_items", target), 0
        busy[connection] = (pid, index, done)
        with contextlib.suppress(OSError):  # a worker that is gone shows when we listen
            connection.send(item)

    bar = tqdm(total=len(items), desc=progress, disable=progress is None)
    try:
        for _ in range(min(workers, len(items))):
            give()
        while busy:
            for connection in wait(list(busy)):
                pid, index, done = busy.pop(connection)
                try:
                    result = connection.recv()
                except (EOFError, OSError):
                    result = RuntimeError(f"the process of item {index} died {nursery().ending(pid)}")
                    connection.close()
                except Exception as error:
                    result = RuntimeError(f"the result of item {index} cannot be read here: {error}")
                give(connection, pid, done + 1)
                bar.update()
                yield index, result
    finally:
        bar.close()
        for connection, (pid, _, _) in busy.items():
            kill(pid)
            connection.close()
