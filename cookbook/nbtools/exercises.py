"""Exercises: do the checks in a notebook tell a right answer from a wrong one?

In:  a notebook and notebooks/solutions/NN.py.     Out: the notebook with answers tried, and what the checks got wrong.

The convention. An [exercise] cell defines one function, say `discount`, whose stub raises NotImplementedError and whose
docstring says "(easy, 5 minutes)". The next code cell is its [exercise-check], calling `check_exercise(discount, ...)`.
The solutions file defines `solution_discount`, which the check must call ok, and `wrong_discount`, a mistake a reader
could make, which it must call wrong. Both may use the names that the notebook defines above the exercise.
"""

import ast
from copy import deepcopy

import nbformat
from nbformat import NotebookNode

from cookbook.nbtools.cells import tagged

EXPECTED = {"stub": "to do:", "solution": "ok:", "wrong": "wrong:"}


def exercise_name(cell: NotebookNode) -> str:
    """The function that an [exercise] cell asks for. Raises ValueError unless it defines exactly one."""
    names = [node.name for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef)]
    if len(names) != 1:
        raise ValueError(f"an exercise cell defines {len(names)} functions: it asks for exactly one")
    return names[0]


def with_answers(nb: NotebookNode, solutions: str) -> NotebookNode:
    """A copy that repeats each check on the solution and on the wrong answer, then restores the stub.

    Raises ValueError when the solutions lack an answer.
    """
    nb = deepcopy(nb)
    defined = {node.name for node in ast.parse(solutions).body if isinstance(node, ast.FunctionDef)}
    cells: list[NotebookNode] = []
    for cell in nb.cells:
        cells.append(cell)
        if "exercise" in cell.metadata.get("tags", []):
            name = exercise_name(cell)
            missing = {f"solution_{name}", f"wrong_{name}"} - defined
            if missing:
                raise ValueError(f"the solutions file does not define {' and '.join(sorted(missing))}")
        if "exercise-check" in cell.metadata.get("tags", []):
            cell.metadata["cookbook_answer"] = [name, "stub"]
            cells.append(nbformat.v4.new_code_cell(f"{solutions}\n_stub = {name}"))
            for answer in ("solution", "wrong"):
                source = f"{name} = {answer}_{name}\n{cell.source}\n{name} = _stub"
                cells.append(nbformat.v4.new_code_cell(source, metadata={"cookbook_answer": [name, answer]}))
    nb.cells = cells
    return nb


def exercise_problems(executed: NotebookNode) -> list[str]:
    """Which checks misjudged which answers, in an executed notebook that came from `with_answers`."""
    problems = []
    for cell in executed.cells:
        if "cookbook_answer" in cell.metadata:
            name, answer = cell.metadata["cookbook_answer"]
            said = "".join(output.get("text", "") for output in cell.outputs).strip() or "nothing"
            if not said.startswith(EXPECTED[answer]):
                problems.append(f"{name}: its check must say {EXPECTED[answer]!r} to the {answer}, and says {said!r}")
    return problems


def exercise_names(nb: NotebookNode) -> list[str]:
    """The functions that a notebook's exercises ask for, in order."""
    return [exercise_name(cell) for cell in tagged(nb, "exercise")]
