"""Form: what is wrong with a notebook before anyone reads it.

In:  a notebook file, as committed.     Out: one sentence a problem, ending in what mends it.
Leaves out: whether the text is true and the figures are worth their place; a reader judges that.
"""

import ast
import io
import json
import re
import tokenize
from pathlib import Path

from nbformat import NotebookNode

from cookbook.nbtools.cells import code_cells, code_hash, declared_parameters, read, tagged
from cookbook.nbtools.exercises import exercise_names
from cookbook.nbtools.parameters import fits, is_known

ONCE = ("parameters", "setup", "recipe", "results")
AT_LEAST_ONCE = ("check", "exercise", "exercise-check")
CODE_CELLS, CODE_LINES, WORDS, FIGURES = (12, 22), (120, 220), (600, 1200), (1, 3)
EXERCISES = (1, 3)
RECIPE_LINES = 40
OUTPUT_BYTES = 1_500_000
OPENING = ("You will learn", "Takes", "Needs", "Reads")
ABSOLUTE_PATH = re.compile(r"(?<![\w.~/])/(?:home|root|Users|work|tmp|usr|opt|var|mnt|private)/\S+|\b[A-Z]:\\\\?\w\S*")
RECIPE_PATH = re.compile(r"\bopen\(|\bPath\(|os\.path|\.(?:csv|json|npz|pt|txt|safetensors)['\"]")


def form_problems(path: Path | str, claim: str | None = None, uses_cookbook: bool = False) -> list[str]:
    """Everything style.md asks of a notebook's form and this one lacks; [] when there is nothing.

    claim: what index.yml says the title is; uses_cookbook: index.yml lets its recipe import the library.
    """
    path = Path(path)
    if not path.is_file():
        return [f"{path.name}: there is no such file: write it, or take it out of notebooks/index.yml"]
    nb = read(path)
    rerun = f"python -m cookbook.nbtools run {path.stem.partition('_')[0]}"
    problems = [*_tags(nb), *_opening(nb, claim), *_sizes(nb)]
    if len(tagged(nb, "parameters")) == 1:
        problems += _parameters(nb)
    if len(tagged(nb, "recipe")) == 1:
        problems += _recipe(tagged(nb, "recipe")[0].source, uses_cookbook)
    problems += [f"{problem}: {rerun}" for problem in _stored(nb)]
    return [f"{path.name}: {problem}" for problem in problems]


def _tags(nb: NotebookNode) -> list[str]:
    mend = "set its tags in JupyterLab's property inspector"
    counts = {tag: len(tagged(nb, tag)) for tag in (*ONCE, *AT_LEAST_ONCE)}
    problems = [f"{counts[tag]} cells are tagged {tag!r}, not one: {mend}" for tag in ONCE if counts[tag] != 1]
    problems += [f"no cell is tagged {tag!r}: {mend}" for tag in AT_LEAST_ONCE if not counts[tag]]
    problems += _outside("exercises", counts["exercise"], EXERCISES)
    try:
        exercise_names(nb)
    except ValueError as error:
        problems.append(f"{error}: split the cell")
    cells = code_cells(nb)
    for cell, following in zip(cells, [*cells[1:], None], strict=True):
        if cell in tagged(nb, "exercise") and (following is None or following not in tagged(nb, "exercise-check")):
            problems.append("an exercise is not followed by its 'exercise-check': put the check in the next code cell")
        if cell in tagged(nb, "exercise") and not re.search(r"\b(easy|medium|hard)\b.*\bminutes?\b", cell.source, re.I):
            problems.append(
                'an exercise does not say how hard and how long: write "(easy, 5 minutes)" in its docstring'
            )
    return problems


def _opening(nb: NotebookNode, claim: str | None) -> list[str]:
    first = nb.cells[0] if nb.cells else None
    if first is None or first.cell_type != "markdown" or not first.source.startswith("# "):
        return ["it does not open with a title: make the first cell markdown that starts with '# ' and the claim"]
    title = first.source.splitlines()[0].removeprefix("# ").strip()
    problems = []
    if claim is not None and title != claim:
        problems.append(f"the title is {title!r} and index.yml claims {claim!r}: make them one")
    elif len(title.split()) < 4 or title.endswith("?"):
        problems.append(f"the title {title!r} claims nothing: write a sentence that a result could refute")
    for start in OPENING:
        if not re.search(rf"^\W*{start}\b", first.source, re.M | re.I):
            problems.append(f"its first cell has no line that starts with {start!r}: add one")
    if "remember" not in nb.cells[-1].source.lower():
        problems.append("it does not end on 'Remember', next and further reading: add that cell")
    return problems


def _outside(what: str, number: int, limits: tuple[int, int]) -> list[str]:
    low, high = limits
    act = "cut" if number > high else "write more, or merge it with its neighbour"
    return [] if low <= number <= high else [f"{number} {what}, outside {low}-{high}: {act}"]


def _sizes(nb: NotebookNode) -> list[str]:
    cells = code_cells(nb)
    text = "\n".join(re.sub(r"<[^>]+>", " ", cell.source) for cell in nb.cells if cell.cell_type == "markdown")
    figures = sum("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    return [
        *_outside("code cells", len(cells), CODE_CELLS),
        *_outside(
            "code lines", sum(bool(line.strip()) for cell in cells for line in cell.source.splitlines()), CODE_LINES
        ),
        *_outside("words", len(re.findall(r"\w[\w'’-]*", text)), WORDS),
        *_outside("figures", figures, FIGURES),
    ]


def _parameters(nb: NotebookNode) -> list[str]:
    """Each statement is `name: type = literal  # comment`, of a type that `-p` can give and papermill can read."""
    from papermill.translators import PythonTranslator

    cell = tagged(nb, "parameters")[0]
    example = "write `updates: int = 20  # RL iterations`"
    tokens = tokenize.generate_tokens(io.StringIO(cell.source).readline)
    commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    problems = []
    for node in ast.parse(cell.source).body:
        line = ast.unparse(node)
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            problems.append(f"the parameters cell holds {line!r}, which is no typed assignment: {example}")
            continue
        annotation = ast.unparse(node.annotation)
        if node.end_lineno not in commented:
            problems.append(f"parameter {node.target.id!r} has no comment: {example}")
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            problems.append(f"parameter {node.target.id!r} is derived, and overrides come later: use a literal")
            continue
        if not is_known(annotation) or not fits(value, annotation):
            problems.append(f"parameter {node.target.id!r} is {value!r} and declared {annotation}: {example}")
    unseen = set(declared_parameters(nb)) - {parameter.name for parameter in PythonTranslator.inspect(cell)}
    return problems + [
        f"papermill cannot read parameter {name!r}: write one '=' in its line" for name in sorted(unseen)
    ]


def _recipe(source: str, uses_cookbook: bool) -> list[str]:
    problems = []
    nodes = list(ast.walk(ast.parse(source)))
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    if any(name.partition(".")[0] == "cookbook" for name in imported) and not uses_cookbook:
        problems.append("the recipe imports cookbook: copy what it needs, or say `uses: cookbook` in index.yml")
    if len(source.splitlines()) > RECIPE_LINES:
        problems.append(f"the recipe has {len(source.splitlines())} lines, over {RECIPE_LINES}: keep the core")
    if found := RECIPE_PATH.search(source) or ABSOLUTE_PATH.search(source):
        problems.append(f"the recipe deals with paths ({found.group()!r}): pass things in and return things")
    return problems


def _stored(nb: NotebookNode) -> list[str]:
    """What only a run can mend."""
    cells = code_cells(nb)
    outputs = [output for cell in cells for output in cell.outputs]
    stamp = nb.metadata.get("cookbook", {})
    problems = []
    if not stamp:
        problems.append("it has no stamp")
    elif stamp.get("code") != code_hash(nb):
        problems.append("its code changed after it was run")
    elif stamp.get("profile") != "fast":
        problems.append(f"it was run with profile {stamp.get('profile')!r}, not 'fast'")
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        problems.append("its cells do not count 1, 2, 3, ...")
    if nb.metadata.get("kernelspec", {}).get("name") != "python3":
        problems.append("its kernel is not python3")
    if "papermill" in nb.metadata or any({"papermill", "execution"} & set(cell.metadata) for cell in nb.cells):
        problems.append("it holds papermill's timings")
    if tagged(nb, "injected-parameters"):
        problems.append("it holds injected parameters")
    if "widgets" in nb.metadata or any("widget" in mime for output in outputs for mime in output.get("data", {})):
        problems.append("it holds widget state")
    if any(output.output_type == "error" for output in outputs):
        problems.append("a cell ended in an error: mend the cell, then")
    if any(output.get("name") == "stderr" for output in outputs):
        problems.append("a cell wrote to stderr: mend what it warns of, then")
    size = len(json.dumps(outputs))
    if size > OUTPUT_BYTES:
        problems.append(f"its outputs take {size / 1e6:.1f} MB, over {OUTPUT_BYTES / 1e6:.1f}: draw less, then")
    shown = [cell.source for cell in nb.cells] + [output.get("text", "") for output in outputs]
    shown += [text for output in outputs for mime, text in output.get("data", {}).items() if mime.startswith("text/")]
    if found := ABSOLUTE_PATH.search("\n".join(map(str, shown))):
        problems.append(f"it holds the absolute path {found.group()!r}: take it out, then")
    return problems
