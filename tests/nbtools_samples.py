"""Throw-away notebooks for test_nbtools*.py."""

import nbformat
import pytest
import yaml

from cookbook.nbtools.run import execute

CLAIM = "Halving a number makes it smaller"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OPENING = f"""\
# {CLAIM}

- **You will learn** halving
- **Takes** a second
- **Needs** nothing
- **Reads, writes** nothing"""
PARAMETERS = """\
updates: int = 2  # RL iterations
rate: float = 0.1  # learning rate
model: str = "tiny"  # its name"""
SETUP = """\
import os
from cookbook.nbtools import check_exercise, check_parameters, emit_results
check_parameters(globals())"""
BAR = """\
import sys, time
for step in range(3):
    print(f"\\r{step}0%|##  | {step}/3", end="", file=sys.stderr, flush=True)
    time.sleep(0.05)"""
FIGURE = f"""\
import base64
from IPython.display import Image, display
display(Image(base64.b64decode("{PIXEL}")))"""
RECIPE = """\
import math

def halve(value):
    return math.ldexp(value, -1)"""
EXERCISE = """\
def double(x):
    '''(easy, 5 minutes) Twice x.'''
    raise NotImplementedError"""
CHECK = "check_exercise(double, [((2,), 4.0), ((-1,), -2.0)], hints=['twice means times two'])"
SOLUTIONS = """\
def solution_double(x):
    return offset + 2 * x

def wrong_double(x):
    return x * x
"""
RESULTS = """\
threads, backend = os.environ["OMP_NUM_THREADS"], os.environ.get("MPLBACKEND", "")
emit_results({"gain": updates * rate, "threads": threads, "backend": backend})"""
CLOSING = "Remember: one, two, three. Next: nothing. Further reading: none."


def notebook(*cells, path=None):
    """A notebook of (tag, source) code cells and plain strings, which are markdown."""
    nb = nbformat.v4.new_notebook()
    for cell in cells:
        if isinstance(cell, str):
            nb.cells.append(nbformat.v4.new_markdown_cell(cell))
        else:
            tag, source = cell
            nb.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": [tag]} if tag else {}))
    if path:
        nbformat.write(nb, path)
    return nb


def good_notebook():
    """In good form but for what only a run can give."""
    filler = [("", "\n".join(f"offset = {line} * 0" for line in range(30))) for _ in range(4)]
    return notebook(
        OPENING, ("parameters", PARAMETERS), ("setup", SETUP), *filler, "word " * 700, ("", "print('said')"), ("", BAR),
        ("", FIGURE), ("recipe", RECIPE), ("check", "assert updates > 0"), ("exercise", EXERCISE),
        ("exercise-check", CHECK), ("results", RESULTS), CLOSING,
    )  # fmt: skip


def run_good_notebook(folder):
    """The good notebook after one real run, without the variables that the kernel is to set."""
    nbformat.write(good_notebook(), folder / "10_good.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        patch.setenv("MPLBACKEND", "Agg")
        execute(folder / "10_good.ipynb", folder / "out" / "10_good.ipynb", profile="fast", stream=False)
    return folder / "out" / "10_good.ipynb"


ROW = {
    "file": "10_good.ipynb", "claim": CLAIM, "shelf": "start", "needs": "CPU",
    "profiles": {"fast": {}, "ci": {"updates": 1}}, "takes": {"fast": 2, "ci": 1}, "wall_limit": {"fast": 20, "ci": 10},
    "bands": [{"name": "gain_is_seen", "expr": "abs(gain) - 0.1", "low": 0.05, "high": 1.0, "seeds": 10}],
    "breaks_with": [{"parameters": {"rate": 0.0}, "must_fail": ["gain_is_seen"]}],
}  # fmt: skip


def write_index(path, *rows):
    path.write_text(yaml.safe_dump({"notebooks": list(rows)}, sort_keys=False))
    return path
