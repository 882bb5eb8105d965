"""Parameters: does a value fit what the [parameters] cell declares?

In:  annotations as text ("int", "list[int]", "float | None") and values.     Out: what is wrong, by name.
Leaves out: ranges and meaning; a notebook's config checks those.
"""

import ast
import json
import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

KINDS: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "list": list,
    "dict": dict,
    "None": type(None),
}


def is_known(annotation: str) -> bool:
    """Whether `fits` can judge this annotation."""
    kinds = [kind.strip().removesuffix("]").partition("[") for kind in annotation.split("|")]
    return all(outer in KINDS and (not inner or (outer == "list" and inner in KINDS)) for outer, _, inner in kinds)


def fits(value: Any, annotation: str) -> bool:
    """Whether a value is what a known annotation says. An int is a float too, True no int; nan and inf are nothing."""

    def fits_one(value: Any, kind: str) -> bool:
        if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
            return kind == "bool" and isinstance(value, bool)
        return isinstance(value, KINDS[kind])

    for kind in annotation.split("|"):
        outer, _, inner = kind.strip().removesuffix("]").partition("[")
        if fits_one(value, outer) and (not inner or all(fits_one(item, inner) for item in value)):
            return True
    return False


def parameter_problems(declared: Mapping[str, str], given: Mapping[str, Any]) -> list[str]:
    """Unknown names and wrong types among the given parameters, one sentence each.

    declared maps a name to its annotation.
    """
    problems = []
    for name, value in given.items():
        if name not in declared:
            close = get_close_matches(name, declared, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            problems.append(f"unknown parameter {name!r}: {meant}this notebook takes {', '.join(declared) or 'none'}")
        elif is_known(declared[name]) and not fits(value, declared[name]):
            problems.append(f"parameter {name!r} must be {declared[name]}, got {value!r} ({type(value).__name__})")
    return problems


def parse_value(text: str, annotation: str = "") -> Any:
    """The value a command line means: JSON, else a Python literal, else the text itself; the first that fits.

    parse_value("1e-3", "float") is 0.001; parse_value("40", "str") is "40".
    """
    readings = []
    for read in (json.loads, ast.literal_eval, str):
        try:
            readings.append(read(text))
        except (ValueError, SyntaxError):
            continue
    fitting = [value for value in readings if is_known(annotation) and fits(value, annotation)]
    return (fitting or readings)[0]
