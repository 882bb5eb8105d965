"""Index: notebooks/index.yml, the one list of notebooks, and the bands their results must keep.

In:  index.yml.     Out: Entry for each notebook; for results, the bands that they leave.
Leaves out: running anything; see run.py and tests/test_notebooks.py.

Every key of an entry is a field of Entry; every key below `bands` and `breaks_with` one of Band and Break.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from cookbook.nbtools.parameters import fits
from cookbook.paths import PACKAGE

NOTEBOOKS = PACKAGE.parent / "notebooks"
INDEX = NOTEBOOKS / "index.yml"
PROFILES = ("fast", "ci", "study", "gpu")
SEEDS_FOR_A_BAND = 10


@dataclass(frozen=True)
class Band:
    """What a result must lie between, edges included."""

    name: str
    """how `must_fail` and the test call it"""
    expr: str
    """arithmetic over results, with abs, min and max: "rl_success - sft_success" """
    low: float
    high: float
    """both edges: a one-sided band passes a result that is not there"""
    seeds: int
    """how many training seeds the edges come from"""
    provisional: bool = False
    """fewer than ten seeds, for now"""

    def value(self, results: Mapping[str, Any]) -> float:
        """The expression's value. Raises ValueError naming the results it lacks."""
        names = {node.id for node in ast.walk(ast.parse(self.expr, mode="eval")) if isinstance(node, ast.Name)}
        missing = names - set(results) - {"abs", "min", "max"}
        if missing:
            raise ValueError(f"band {self.name!r} reads {sorted(missing)}; the results hold {', '.join(results)}")
        return eval(self.expr, {"__builtins__": {"abs": abs, "min": min, "max": max}}, dict(results))


@dataclass(frozen=True)
class Break:
    """Parameters under which the claim must not hold."""

    parameters: dict[str, Any]
    """on top of the fast profile"""
    must_fail: list[str]
    """names of the bands that must then be left, every one"""


@dataclass(frozen=True)
class Entry:
    """One notebook."""

    file: str
    """NN_name.ipynb"""
    claim: str
    """the notebook's title, word for word"""
    shelf: str
    """the group it stands in: start, environments, rewards, training, recipe, scale"""
    needs: str
    """what the machine must have: "CPU", "one GPU, 80 GB" """
    takes: dict[str, float]
    """profile -> measured seconds on two cores (gpu: on what `needs` says)"""
    wall_limit: dict[str, float]
    """profile -> seconds after which a run is ended"""
    profiles: dict[str, dict[str, Any]]
    """profile -> parameters; fast is always {}: the notebook's own defaults"""
    bands: tuple[Band, ...] = ()
    breaks_with: tuple[Break, ...] = ()
    provisional: bool = False
    """the bands are not measured yet"""
    uses: str = ""
    """"cookbook" when the recipe may import the library"""

    @property
    def number(self) -> str:
        """How commands call it: "40"."""
        return self.file.partition("_")[0]

    @property
    def path(self) -> Path:
        """Where the notebook is."""
        return NOTEBOOKS / self.file

    @property
    def solutions(self) -> Path:
        """Where the answers to its exercises are."""
        return NOTEBOOKS / "solutions" / f"{self.number}.py"


def load_index(path: Path | str = INDEX) -> dict[str, Entry]:
    """Number -> entry, in the file's order. Raises ValueError that names the entry, the key and what would do."""
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error
    if not isinstance(document, dict) or list(document) != ["notebooks"] or not isinstance(document["notebooks"], list):
        raise ValueError(f"{path} must hold one key, `notebooks`, with a list of entries")
    index: dict[str, Entry] = {}
    for position, row in enumerate(document["notebooks"], start=1):
        entry = _entry(row, f"{path}, entry {position}")
        if entry.number in index:
            raise ValueError(f"{path}: two notebooks have the number {entry.number}: rename one")
        index[entry.number] = entry
    return index


def failing_bands(results: Mapping[str, Any], bands: Sequence[Band]) -> dict[str, str]:
    """Name -> sentence for every band that the results leave; {} when they keep all."""
    failing = {}
    for band in bands:
        value = band.value(results)
        if not band.low <= value <= band.high:
            failing[band.name] = f"{band.name}: {band.expr} = {value:.4g}, outside [{band.low:g}, {band.high:g}]"
    return failing


def _entry(row: Any, where: str) -> Entry:
    if isinstance(row, dict) and row.get("file"):
        where = f"{where} ({row['file']})"
    row = dict(_checked(row, Entry, where))
    for key, kind in (("bands", Band), ("breaks_with", Break)):
        rows = row.get(key, [])
        if not isinstance(rows, list):
            raise ValueError(f"{where}: {key} must be a list")
        row[key] = tuple(kind(**_checked(each, kind, f"{where}, {key} {n}")) for n, each in enumerate(rows, start=1))
    entry = Entry(**row)
    for sentence in _entry_problems(entry):
        raise ValueError(f"{where}: {sentence}")
    return entry


def _checked(row: Any, kind: type, where: str) -> dict[str, Any]:
    """The row, if its keys and the types of its values are those of the dataclass."""
    if not isinstance(row, dict):
        raise ValueError(f"{where}: must be a mapping, got {row!r}")
    known = {field.name: field for field in fields(kind)}
    needed = [name for name, field in known.items() if field.default is MISSING]
    if unknown := [name for name in row if name not in known]:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(known)}")
    if missing := [name for name in needed if name not in row]:
        raise ValueError(f"{where}: key {missing[0]!r} is missing; {', '.join(needed)} must be there")
    for name, value in row.items():
        wanted = getattr(known[name].type, "__origin__", known[name].type).__name__  # dict[str, float] -> dict
        if wanted != "tuple" and not fits(value, wanted):  # a tuple holds rows, which are checked one by one
            raise ValueError(f"{where}: {name} must be {wanted}, got {value!r}")
    return row


def _entry_problems(entry: Entry) -> list[str]:
    problems = []
    if not re.fullmatch(r"\d\d_\w+\.ipynb", entry.file):
        problems.append("file must look like 40_recipe.ipynb")
    for key in ("profiles", "takes", "wall_limit"):
        unknown = set(getattr(entry, key)) - set(PROFILES)
        if unknown:
            problems.append(f"{key} names {sorted(unknown)}; the profiles are {', '.join(PROFILES)}")
    if entry.profiles.get("fast") != {} or not isinstance(entry.profiles.get("ci"), dict):
        problems.append("profiles needs `fast: {}` (the notebook's defaults) and `ci: {...}`")
    for key in ("takes", "wall_limit"):
        if set(getattr(entry, key)) != set(entry.profiles):
            problems.append(f"{key} must give seconds for {', '.join(entry.profiles)}, and for nothing else")
    if entry.uses not in ("", "cookbook"):
        problems.append(f"uses can only be cookbook, got {entry.uses!r}")
    if not entry.provisional and not (entry.bands and entry.breaks_with):
        problems.append("no bands or no breaks_with: measure them, or say `provisional: true`")
    names = [band.name for band in entry.bands]
    for band in entry.bands:
        if names.count(band.name) > 1:
            problems.append(f"two bands are called {band.name!r}")
        if band.low > band.high:
            problems.append(f"band {band.name!r} has low {band.low} above high {band.high}")
        if band.seeds < SEEDS_FOR_A_BAND and not band.provisional:
            problems.append(f"band {band.name!r} has {band.seeds} seeds: ten, or `provisional: true`")
    for broken in entry.breaks_with:
        if not broken.must_fail or set(broken.must_fail) - set(names):
            problems.append(f"must_fail {broken.must_fail} must name bands; they are {', '.join(names) or 'none'}")
    return problems
