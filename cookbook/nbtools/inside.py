"""Inside: the three calls a notebook makes from its own cells.

In:  the notebook's globals, a reader's answer, a dict of results.     Out: a refusal, a verdict, one readable output.
Leaves out: anything that needs papermill; see run.py.
"""

import ast
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from cookbook.nbtools.parameters import is_known, parameter_problems

RESULTS_MIME = "application/vnd.cookbook.results+json"


def check_parameters(namespace: Mapping[str, Any]) -> None:
    """Refuse parameters that papermill injected and the [parameters] cell does not declare, and wrong types.

    Called once, in [setup]: `check_parameters(globals())`. Declared are the annotated names; injected are the names
    assigned by papermill's own cell, which IPython keeps in `In`. Works under plain papermill and in JupyterLab.
    Raises ValueError naming every bad parameter and the valid ones.
    """
    annotations = namespace.get("__annotations__", {})
    declared = {name: kind.__name__ if isinstance(kind, type) else str(kind) for name, kind in annotations.items()}
    declared = {name: kind for name, kind in declared.items() if is_known(kind)}
    given = {name: namespace[name] for name in [*declared, *_injected_names(namespace.get("In", []))]}
    problems = parameter_problems(declared, given)
    if problems:
        raise ValueError("; ".join(problems))


def _injected_names(cells: Sequence[str]) -> list[str]:
    """Names assigned by the last cell that papermill wrote: it starts with "# Parameters" and annotates nothing."""
    injected = [source for source in cells if source.startswith("# Parameters\n")]
    body = ast.parse(injected[-1]).body if injected else []
    return [target.id for node in body if isinstance(node, ast.Assign) for target in node.targets]


def emit_results(results: Mapping[str, Any]) -> None:
    """Show a notebook's results once, as text and as JSON that `read_results` finds.

    A flat dict: names to finite numbers, strings or booleans. Raises ValueError on anything else.
    """
    if not results:
        raise ValueError("no results: emit_results needs at least one")
    for name, value in results.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"result name {name!r} is not a name: bands could not refer to it")
        if not isinstance(value, bool | int | float | str):
            raise ValueError(
                f"result {name!r} is a {type(value).__name__}: convert it with float(), int(), bool() or str()"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"result {name!r} is {value}: leave it out, or say what it means as text")
    width = max(map(len, results))
    shown = {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in results.items()}
    text = "\n".join(f"{name:<{width}}  {value}" for name, value in shown.items())
    try:
        get_ipython  # noqa: B018  IPython puts it among the builtins
    except NameError:
        print(text)
    else:
        from IPython.display import display

        plain = {name: float(value) if isinstance(value, float) else value for name, value in results.items()}
        display({"text/plain": text, RESULTS_MIME: plain}, raw=True)


def check_exercise(function: Callable, cases: Sequence[tuple[tuple, Any]], hints: Sequence[str] = ()) -> None:
    """Print one verdict on a reader's function: "to do", "wrong" with the first case that fails, or "ok".

    cases are (arguments, expected) pairs; hints[i] is shown when case i fails. A stub that raises NotImplementedError
    or returns None or `...` is to do. Numbers compare to about four digits; tensors and arrays compare as lists.
    """
    for number, (arguments, expected) in enumerate(cases):
        verdict = _verdict(function, arguments, expected)
        if verdict:
            print(verdict)
            if verdict.startswith("wrong") and number < len(hints):
                print(f"hint: {hints[number]}")
            return
    print(f"ok: {function.__name__}, {len(cases)} cases")


def _verdict(function: Callable, arguments: tuple, expected: Any) -> str:
    """What there is to say about one case; "" when it is right."""
    call = f"{function.__name__}({', '.join(map(reprlib.repr, arguments))})"
    try:
        got = function(*deepcopy(arguments))
    except NotImplementedError:
        got = ...
    except Exception as error:
        return f"wrong: {call} raises {type(error).__name__}: {error}"
    if got is ... or (got is None and expected is not None):
        return f"to do: {function.__name__}"
    return "" if _same(got, expected) else f"wrong: {call} gives {reprlib.repr(got)}, expected {reprlib.repr(expected)}"


def _same(got: Any, expected: Any) -> bool:
    got, expected = (value.tolist() if hasattr(value, "tolist") else value for value in (got, expected))
    if isinstance(expected, list | tuple):
        return isinstance(got, list | tuple) and len(got) == len(expected) and all(map(_same, got, expected))
    if isinstance(expected, float):
        return isinstance(got, int | float) and math.isclose(got, expected, rel_tol=1e-4, abs_tol=1e-6)
    return got == expected
