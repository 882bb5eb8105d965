"""Run: execute one notebook in a fresh kernel, within a time limit, and tidy what it leaves.

In:  notebook, parameters, where to write.     Out: the executed notebook, without timings, with a stamp.
Leaves out: papermill's time limit per cell: the wall limit covers every cell and the start of the kernel too.
"""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from cookbook import __version__
from cookbook.nbtools.cells import code_cells, code_hash, declared_parameters, read
from cookbook.nbtools.parameters import parameter_problems
from cookbook.paths import PACKAGE

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
PROGRESS_BAR = re.compile(r"\d+%\||\d\w* ?\w* \[(\d+:)?\d\d:\d\d[,<]")  # tqdm, with a total and without


class NotebookFailed(RuntimeError):
    """A cell raised, the kernel died, or the time was up; the message says which and where the partial notebook is."""


def execute(
    notebook: Path | str,
    out: Path | str,
    parameters: Mapping[str, Any] | None = None,
    *,
    profile: str = "",
    wall_limit: float | None = None,
    cwd: Path | str | None = None,
    stream: bool = True,
    grace: float = 30.0,
) -> NotebookNode:
    """Run a notebook through papermill and write it, tidied and stamped, to `out`.

    notebook: never written to, unless it is also `out`
    parameters: refused before the start when a name is unknown or a type is wrong
    profile: goes into the stamp
    wall_limit: seconds for all of it; then the kernel is interrupted, and killed `grace` seconds later
    cwd: where the kernel works; the notebook's folder, as in JupyterLab, unless told otherwise
    stream: show what the cells print while they print it

    Ctrl-C interrupts the running cell, which may save its work, and kills the kernel `grace` seconds later.
    Raises ValueError for a bad parameter, NotebookFailed, KeyboardInterrupt; the partial notebook stays in `out`.
    """
    import papermill

    notebook, out, parameters = Path(notebook), Path(out), dict(parameters or {})
    problems = parameter_problems(declared_parameters(read(notebook)), parameters) if parameters else []
    if problems:
        raise ValueError(f"{notebook.name}: " + "; ".join(problems))
    out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with _kernel(Path(cwd or notebook.parent)) as kernel, _Stopper(kernel, wall_limit, grace) as stopper:
        try:
            nb = papermill.execute_notebook(
                str(notebook), str(out), parameters, kernel_name="python3", language="python", progress_bar=False,
                km=kernel, iopub_timeout=60, stdout_file=sys.stdout if stream else None,
                stderr_file=sys.stderr if stream else None,
            )  # fmt: skip
        except Exception as error:
            stopper.raise_if_stopped(out)
            raise NotebookFailed(f"{_told(error)}\n{notebook.name} stopped; what it had done is in {out}") from error
        stopper.raise_if_stopped(out)
    tidy(nb)
    seconds = round(time.monotonic() - began)
    nb.metadata["cookbook"] = {"code": code_hash(nb), "version": __version__, "seconds": seconds, "profile": profile}
    nbformat.write(nb, out)
    return nb


def tidy(nb: NotebookNode) -> None:
    """Take out, in place, what changes from run to run or draws nothing: timings, progress bars, widget state."""
    nb.metadata = NotebookNode(kernelspec=KERNELSPEC, language_info={"name": "python"})
    for cell in nb.cells:
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
    for cell in code_cells(nb):
        cell.outputs = [output for output in _merged(cell.outputs) if WIDGET_MIME not in output.get("data", {})]
        for output in cell.outputs:
            if output.output_type == "stream":
                output.text = _final_lines(output.text)
        cell.outputs = [output for output in cell.outputs if output.get("text", "-").strip()]


def _merged(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Neighbouring pieces of one stream as one output."""
    merged: list[NotebookNode] = []
    for output in outputs:
        if merged and output.output_type == "stream" and merged[-1].get("name") == output.name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    return merged


def _final_lines(text: str) -> str:
    """What a terminal would show in the end, less the progress bars."""
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return "\n".join(line for line in lines if not PROGRESS_BAR.search(line))


def _told(error: Exception) -> str:
    """The error as the notebook's author would want to read it."""
    traceback = getattr(error, "traceback", None)
    if not traceback:
        return f"{type(error).__name__}: {error}"
    plain = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(traceback))
    return f"cell [{error.exec_count}] raised {error.ename}: {error.evalue}\n\n{plain}\n"


@contextmanager
def _kernel(cwd: Path) -> Iterator:
    """A kernel of this Python, one thread unless OMP_NUM_THREADS says otherwise; shut down on every way out."""
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_core.utils import run_sync

    class ThisPython(KernelSpecManager):
        """Whatever "python3" is on this machine, the notebooks run in the Python that runs this."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            return KernelSpec(resource_dir="", **get_kernel_dict())

    env = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}  # Agg would lose every figure
    env["PYTHONWARNINGS"] = "ignore::FutureWarning,ignore:IProgress not found"  # other libraries' notes to themselves
    env |= {name: env.get(name, env.get("OMP_NUM_THREADS", "1")) for name in THREAD_VARIABLES}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PACKAGE.parent), env.get("PYTHONPATH")]))
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisPython())
    quiet = ["--HistoryManager.hist_file=:memory:", "--log-level=40"]  # no shared history, errors only on the terminal
    try:
        run_sync(manager.start_kernel)(cwd=str(cwd), env=env, extra_arguments=quiet)
        yield manager
    finally:
        if manager.has_kernel:
            run_sync(manager.shutdown_kernel)()
        manager.cleanup_connection_file()


class _Stopper:
    """Ends a kernel early: an interrupt first, so that the cell can save and its traceback is kept, then the axe."""

    def __init__(self, kernel, wall_limit: float | None, grace: float):
        self.kernel, self.wall_limit, self.grace = kernel, wall_limit, grace
        self.reason: str | None = None
        self.timers: list[threading.Timer] = []

    def __enter__(self) -> "_Stopper":
        if self.wall_limit is not None:
            self._later(self.wall_limit, lambda: self._stop(f"the wall limit of {self.wall_limit:g} s is up"))
        self.in_main = threading.current_thread() is threading.main_thread()
        if self.in_main:
            self.handler = signal.signal(signal.SIGINT, lambda *_: self._stop("Ctrl-C"))
        return self

    def __exit__(self, *exception) -> None:
        for timer in self.timers:
            timer.cancel()
        if self.in_main:
            signal.signal(signal.SIGINT, self.handler)

    def raise_if_stopped(self, out: Path) -> None:
        """Say why the kernel was ended, if it was."""
        if self.reason:
            kind = KeyboardInterrupt if self.reason == "Ctrl-C" else NotebookFailed
            raise kind(f"{self.reason}; what the notebook had done is in {out}") from None

    def _stop(self, reason: str) -> None:
        """The first call interrupts, a second one (Ctrl-C twice) kills at once."""
        if self.reason:
            return self._signal(signal.SIGKILL)
        self.reason = reason
        self._later(self.grace, lambda: self._signal(signal.SIGKILL))
        self._signal(signal.SIGINT)

    def _later(self, seconds: float, action) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()
        self.timers.append(timer)

    def _signal(self, number: int) -> None:
        """To the kernel and the workers it started; not through asyncio, whose loop is busy with the notebook."""
        group = self.kernel.provisioner.pgid
        if group and self.kernel.has_kernel:
            with suppress(ProcessLookupError):  # it ended by itself
                os.killpg(group, number)
