"""Cells: a notebook's parts, found by their tags.

In:  a notebook, as a path or an nbformat node.     Out: cells, parameters, recipe, results, a hash.
"""

import ast
import builtins
import hashlib
import symtable
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from cookbook.nbtools.inside import RESULTS_MIME


def read(notebook: Path | str | NotebookNode) -> NotebookNode:
    """The notebook as a node, whatever way it is given."""
    return notebook if isinstance(notebook, NotebookNode) else nbformat.read(notebook, as_version=4)


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """The code cells, in order."""
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def tagged(nb: NotebookNode, tag: str) -> list[NotebookNode]:
    """The code cells that carry a tag, in order."""
    return [cell for cell in code_cells(nb) if tag in cell.metadata.get("tags", [])]


def only(nb: NotebookNode, tag: str) -> NotebookNode:
    """The one code cell with this tag. Raises ValueError when there is none or more than one."""
    cells = tagged(nb, tag)
    if len(cells) != 1:
        raise ValueError(f"{len(cells)} cells are tagged {tag!r}: tag exactly one, in JupyterLab's property inspector")
    return cells[0]


def code_hash(nb: NotebookNode) -> str:
    """A short hash of everything that is executed; papermill's injected cell does not count."""
    sources = [cell.source for cell in code_cells(nb) if "injected-parameters" not in cell.metadata.get("tags", [])]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


def declared_parameters(nb: NotebookNode) -> dict[str, str]:
    """Name -> annotation of each parameter in the [parameters] cell; a name without annotation has ""."""
    found = {}
    for node in ast.parse(only(nb, "parameters").source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign):
            found.update({target.id: "" for target in node.targets if isinstance(target, ast.Name)})
    return found


def read_results(notebook: Path | str | NotebookNode) -> dict[str, Any]:
    """The results that an executed notebook emitted. Raises ValueError unless there is exactly one results output."""
    nb = read(notebook)
    outputs = [output for cell in code_cells(nb) for output in cell.outputs]
    found = [output.data[RESULTS_MIME] for output in outputs if RESULTS_MIME in output.get("data", {})]
    if len(found) != 1:
        raise ValueError(f"{len(found)} results outputs, not one: call emit_results once, in [results], and run it")
    return dict(found[0])


def recipe_source(notebook: Path | str | NotebookNode) -> str:
    """The source of the [recipe] cell."""
    return only(read(notebook), "recipe").source


def run_recipe(source: str, allow_cookbook: bool = False) -> dict[str, Any]:
    """Execute a recipe in an empty namespace, with `cookbook` blocked from import; what it defined comes back.

    Raises NameError when a function in it reads a name that it does not bring, and whatever the recipe itself raises.
    """
    namespace: dict[str, Any] = {"__name__": "recipe"}
    with _blocked("" if allow_cookbook else "cookbook"):
        exec(compile(source, "<recipe>", "exec"), namespace)
    missing = sorted(_global_names(symtable.symtable(source, "<recipe>", "exec")) - {*namespace, *dir(builtins)})
    if missing:
        raise NameError(f"the recipe reads {', '.join(missing)} and does not define it: import it, or pass it in")
    return namespace


@contextmanager
def _blocked(package: str) -> Iterator[None]:
    """While open, importing the package raises ImportError; the modules already loaded come back afterwards."""
    hidden = {name: module for name, module in sys.modules.items() if package and name.split(".")[0] == package}
    blocks = {package: None} if package else {}
    for name in hidden:
        del sys.modules[name]
    sys.modules.update(blocks)
    try:
        yield
    finally:
        for name in blocks:
            del sys.modules[name]
        sys.modules.update(hidden)


def _global_names(table: symtable.SymbolTable) -> set[str]:
    """Names that the functions and classes below this table read from the module."""
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return names.union(*map(_global_names, table.get_children()))
