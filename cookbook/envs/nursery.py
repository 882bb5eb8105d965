"""Nursery: a clean process from which workers are forked.

In:  "module:function" and arguments.     Out: a connection to a fresh process that runs it.
Why not multiprocessing: spawn and forkserver import the caller's main module again, torch and all, which takes
seconds; a plain fork from a process that has used torch is unsafe. This process imports TextWorld once, never torch,
and forks in milliseconds.
Leaves out: threads; ask a nursery from one thread only.
"""

import atexit
import contextlib
import ctypes
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from multiprocessing.connection import Connection, wait
from typing import Any

PRELOAD = ("textworld",)


class Nursery:
    """One clean subprocess. `fork` gives a connection to, and the pid of, a new worker."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        code = "import sys; fd, sys.path[:] = eval(sys.argv[1]); from cookbook.envs.nursery import serve; serve(fd)"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, repr((theirs.fileno(), [str(place) for place in sys.path]))],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent alone
            )  # fmt: skip
        self.socket = ours
        self.owner = os.getpid()
        self.warmed: set[str] = set()

    def fork(self, target: str, *args: Any) -> tuple[Connection, int]:
        """Run target(connection, *args) in a fresh worker. Raises RuntimeError when the nursery has died."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            pid = self._ask("fork", target, pickle.dumps(args), fds=[theirs.fileno()])
            return Connection(ours.detach()), pid

    def warm(self, target: str, key: str, *args: Any) -> None:
        """Run target(*args) in the nursery itself, once for each key: caches that it fills, every later worker has."""
        if key not in self.warmed:
            self.warmed.add(key)
            self._ask("warm", target, pickle.dumps(args))

    def ending(self, pid: int) -> str:
        """How a worker came to its end, in words; one that still lives is killed."""
        try:
            code = self._ask("end", pid)
        except RuntimeError:
            return "together with the nursery"
        return f"with signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"

    def _ask(self, *question: Any, fds: Any = ()) -> int:
        message = pickle.dumps((question, [str(place) for place in sys.path], dict(os.environ), os.getcwd()))
        try:
            socket.send_fds(self.socket, [len(message).to_bytes(8, "big")], fds)
            self.socket.sendall(message)
            return int.from_bytes(_receive(self.socket, 8), "big", signed=True)
        except BaseException as error:  # Ctrl-C too: the answer on its way would be taken for that of the next question
            self.close()
            if isinstance(error, OSError | EOFError):
                raise RuntimeError(f"the worker nursery has died: {error}") from error
            raise

    def close(self) -> None:
        """End the nursery and all its workers; safe to call twice, and nothing in a process that forked off ours."""
        if self.owner != os.getpid():
            return
        self.socket.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


_shared: Nursery | None = None


def nursery() -> Nursery:
    """The nursery that all pools of this process share, started when first needed, anew when it has died."""
    global _shared
    if _shared is None or _shared.owner != os.getpid() or _shared.process.poll() is not None:
        _shared = Nursery()
        atexit.register(_shared.close)
    return _shared


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError("connection closed")
        data += part
    return data


def serve(fd: int) -> None:
    """The nursery's own loop: until the parent closes its end, do what it asks, and reap the workers that ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler of our own, or nothing is written to `wake`
    for module in PRELOAD:
        with contextlib.suppress(ImportError):  # the worker that needs it says so
            importlib.import_module(module)
    control = socket.socket(fileno=fd)
    children: dict[int, int | None] = {}  # pid -> None while it lives, then a bad exit code
    while True:
        ready = wait([control, woken])
        if woken in ready:
            os.read(woken, 4_096)
            for pid in [pid for pid, code in children.items() if code is None]:
                _reap(children, pid, os.WNOHANG)
        if control in ready:
            try:
                size, fds, _, _ = socket.recv_fds(control, 8, 1)
                question, sys.path[:], environment, folder = pickle.loads(
                    _receive(control, int.from_bytes(size, "big"))
                )
            except (OSError, EOFError):
                os.killpg(0, signal.SIGKILL)
            _move(environment, folder)
            reply = _answer(children, (fd, woken, wake), fds, *question)
            control.sendall(reply.to_bytes(8, "big", signed=True))


def _move(environment: dict[str, str], folder: str) -> None:
    """Be where the parent is now, not where it was when the nursery started."""
    if environment != dict(os.environ):
        os.environ.clear()
        os.environ.update(environment)
    with contextlib.suppress(OSError):
        os.chdir(folder)


def _answer(children: dict, private: tuple[int, ...], fds: list[int], kind: str, target: Any, args: bytes = b"") -> int:
    """args stay pickled until the worker has them: what cannot be unpickled is not the nursery's end."""
    if kind == "end":
        if target in children and children[target] is None:
            os.kill(target, signal.SIGKILL)
            _reap(children, target, 0)
        return children.pop(target, 0)
    if kind == "warm":
        with contextlib.suppress(Exception):  # what fails here fails again, and is told, in the worker
            load(target)(*pickle.loads(args))
        return 0
    pid = os.fork()
    if pid == 0:
        for fd in private:
            os.close(fd)
        _work(fds[0], target, args)
    os.close(fds[0])
    children[pid] = None
    return pid


def _reap(children: dict[int, int | None], pid: int, options: int) -> None:
    """Note a bad end, forget a good one. Ours only: a program that `warm` runs is waited for by whoever started it."""
    done, status = os.waitpid(pid, options)
    if done:
        children[pid] = os.waitstatus_to_exitcode(status)
        if children[pid] == 0:
            del children[pid]


def _work(fd: int, target: str, args: bytes) -> None:
    """A worker's whole life."""
    code = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the nursery
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection = Connection(fd)  # never closed here: who sees it closed asks how we ended, and by then we have
        load(target)(connection, *pickle.loads(args))
        code = 0
    except (EOFError, BrokenPipeError, ConnectionResetError):
        code = 0  # the other side has gone
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def load(target: str) -> Any:
    """What "module:name" names. Raises ValueError when there is no such thing."""
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{target!r} cannot be imported: {error}") from error
