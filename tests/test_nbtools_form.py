"""The notebook frame, on throw-away notebooks: form, recipes, the index and its bands."""

import sys

import nbformat
import pytest
from nbtools_samples import CLAIM, ROW, run_good_notebook, write_index

from cookbook.nbtools import index
from cookbook.nbtools.cells import read, recipe_source, run_recipe, tagged
from cookbook.nbtools.form import form_problems
from cookbook.nbtools.index import Band, failing_bands, load_index


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    return run_good_notebook(tmp_path_factory.mktemp("good"))


# form


def test_a_run_leaves_a_notebook_in_good_form(executed):
    assert form_problems(executed, claim=CLAIM) == []


def tag_twice(nb):
    nb.cells[2].metadata["tags"] = ["parameters"]


def set_source(tag, old, new):
    def change(nb):
        cell = tagged(nb, tag)[0]
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


BROKEN_FORM = {
    "2 cells are tagged 'parameters'": tag_twice,
    "no cell is tagged 'check'": lambda nb: tagged(nb, "check")[0].metadata.update(tags=[]),
    "not followed by its 'exercise-check'": lambda nb: tagged(nb, "exercise-check")[0].metadata.update(tags=["check"]),
    "how hard and how long": set_source("exercise", "(easy, 5 minutes)", ""),
    "asks for exactly one: split": set_source("exercise", "def double", "def triple(x):\n    pass\n\ndef double"),
    "does not open with a title": lambda nb: nb.cells.pop(0),
    "index.yml claims": lambda nb: nb.cells[0].update(source=nb.cells[0].source.replace("Halving", "Doubling")),
    "no line that starts with 'Needs'": lambda nb: nb.cells[0].update(source=nb.cells[0].source.replace("Needs", "N")),
    "does not end on 'Remember'": lambda nb: nb.cells.pop(),
    "23 code cells": lambda nb: nb.cells.extend([nbformat.v4.new_code_cell("1") for _ in range(9)]),
    "code lines, outside 120-220: cut": set_source("check", "assert", "x = 1\n" * 100 + "assert"),
    "words, outside 600-1200: write more": lambda nb: nb.cells.pop(7),
    "0 figures": lambda nb: nb.cells[10].update(outputs=[]),
    "no typed assignment": set_source("parameters", "updates: int", "updates"),
    "'updates' has no comment": set_source("parameters", "  # RL iterations", ""),
    "'updates' is derived": set_source("parameters", "int = 2", "int = 1 + 1"),
    "'updates' is 2.0 and declared int": set_source("parameters", "int = 2", "int = 2.0"),
    "papermill cannot read parameter 'updates'": set_source("parameters", "RL iterations", "RL = iterations"),
    "the recipe imports cookbook": set_source("recipe", "import math", "import math\nfrom cookbook import loss"),
    "the recipe has 55 lines": set_source("recipe", "import math", "import math\n" * 51),
    "the recipe deals with paths ('.csv\"')": set_source("recipe", "return", 'name = "a.csv"\n    return'),
    "no stamp": lambda nb: nb.metadata.pop("cookbook"),
    "its code changed after it was run": set_source("check", "> 0", ">= 0"),
    "run with profile 'ci'": lambda nb: nb.metadata["cookbook"].update(profile="ci"),
    "do not count 1, 2, 3": lambda nb: nb.cells[2].update(execution_count=9),
    "its kernel is not python3": lambda nb: nb.metadata.pop("kernelspec"),
    "papermill's timings": lambda nb: nb.cells[3].metadata.update(execution={"start": 1}),
    "injected parameters": lambda nb: nb.cells[3].metadata.update(tags=["injected-parameters"]),
    "widget state": lambda nb: nb.metadata.update(widgets={}),
    "ended in an error": lambda nb: nb.cells[3].outputs.append(nbformat.v4.new_output("error", ename="E", evalue="")),
    "wrote to stderr": lambda nb: nb.cells[3].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="!")),
    "its outputs take 2.0 MB": lambda nb: nb.cells[3].outputs.append(
        nbformat.v4.new_output("stream", text="x" * 2_000_000)
    ),
    "the absolute path '/home/me/x.py'": lambda nb: nb.cells[3].outputs.append(
        nbformat.v4.new_output("stream", text="in /home/me/x.py")
    ),
}


@pytest.mark.parametrize("problem", BROKEN_FORM)
def test_a_broken_form_is_named(problem, executed, tmp_path):
    nb = read(executed)
    BROKEN_FORM[problem](nb)
    nbformat.write(nb, tmp_path / "10_good.ipynb")
    problems = form_problems(tmp_path / "10_good.ipynb", claim=CLAIM)
    assert any(problem in line for line in problems), problems


def test_what_a_run_mends_names_the_run(executed, tmp_path):
    nb = read(executed)
    del nb.metadata["cookbook"]
    nbformat.write(nb, tmp_path / "10_good.ipynb")
    assert form_problems(tmp_path / "10_good.ipynb") == [
        "10_good.ipynb: it has no stamp: python -m cookbook.nbtools run 10"
    ]


def test_a_notebook_that_is_not_there_is_one_problem(tmp_path):
    assert form_problems(tmp_path / "10_none.ipynb") == [
        "10_none.ipynb: there is no such file: write it, or take it out of notebooks/index.yml"
    ]


# recipes


def test_a_recipe_runs_alone(executed):
    assert run_recipe(recipe_source(executed))["halve"](3) == 1.5


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("from cookbook import tasks", ImportError),
        ("import cookbook.paths", ImportError),
        ("value = updates", NameError),
        ("def late(x):\n    return x * updates", NameError),
        ("def outer():\n    def inner():\n        return updates\n    return inner", NameError),
    ],
)
def test_a_recipe_that_leans_on_something_is_refused(source, error):
    with pytest.raises(error):
        run_recipe(source)
    assert sys.modules["cookbook.nbtools.index"] is index


def test_a_recipe_may_use_cookbook_when_the_index_says_so():
    assert run_recipe("from cookbook import tasks", allow_cookbook=True)["tasks"].__name__ == "cookbook.tasks"


# index and bands


def test_an_index_is_read(tmp_path):
    entry = load_index(write_index(tmp_path / "index.yml", ROW))["10"]
    assert entry.bands == (Band("gain_is_seen", "abs(gain) - 0.1", 0.05, 1.0, 10),)
    assert entry.breaks_with[0].parameters == {"rate": 0.0}
    assert entry.profiles["ci"] == {"updates": 1}


BAD_ROWS = {
    r"\(10_good.ipynb\): unknown key 'claims'; known are file, claim": {"claims": "x"},
    r"file must look like 40_recipe.ipynb": {"file": "good.ipynb"},
    r"claim must be str, got 3": {"claim": 3},
    r"provisional must be bool, got 'yes'": {"provisional": "yes"},
    r"profiles needs `fast: {}`": {"profiles": {"fast": {"updates": 1}, "ci": {}}},
    r"profiles names \['quick'\]": {"profiles": {"fast": {}, "ci": {}, "quick": {}}},
    r"wall_limit must give seconds for fast, ci": {"wall_limit": {"fast": 3}},
    r"no bands or no breaks_with: measure them": {"breaks_with": []},
    r"bands 1: key 'low' is missing": {"bands": [{"name": "a", "expr": "gain", "high": 1, "seeds": 10}]},
    r"bands 1: low must be float, got 'x'": {"bands": [ROW["bands"][0] | {"low": "x"}]},
    r"'gain_is_seen' has low 2 above high 1.0": {"bands": [ROW["bands"][0] | {"low": 2}]},
    r"has 3 seeds: ten, or `provisional: true`": {"bands": [ROW["bands"][0] | {"seeds": 3}]},
    r"two bands are called": {"bands": ROW["bands"] * 2},
    r"must name bands; they are gain_is_seen": {"breaks_with": [{"parameters": {}, "must_fail": ["loss"]}]},
    r"uses can only be cookbook": {"uses": "torch"},
}


@pytest.mark.parametrize("message", BAD_ROWS)
def test_a_bad_entry_is_refused_by_name(message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_index(write_index(tmp_path / "index.yml", ROW | BAD_ROWS[message]))


def test_a_missing_key_and_a_number_used_twice_are_refused(tmp_path):
    without = {key: value for key, value in ROW.items() if key != "needs"}
    with pytest.raises(ValueError, match="key 'needs' is missing"):
        load_index(write_index(tmp_path / "index.yml", without))
    with pytest.raises(ValueError, match="two notebooks have the number 10"):
        load_index(write_index(tmp_path / "index.yml", ROW, ROW))


def test_a_band_is_left_on_both_sides_and_kept_on_its_edge():
    band = Band("b", "a - b", 0.0, 1.0, 10)
    assert failing_bands({"a": 1, "b": 1}, [band]) == {} == failing_bands({"a": 2, "b": 1}, [band])
    assert failing_bands({"a": 3, "b": 1}, [band]) == {"b": "b: a - b = 2, outside [0, 1]"}
    assert set(failing_bands({"a": 0, "b": 1}, [band])) == {"b"}
    with pytest.raises(ValueError, match=r"reads \['b'\]; the results hold a"):
        failing_bands({"a": 3}, [band])
