"""Every notebook of notebooks/index.yml: its form, its recipe, its ci profile; slow: its bands and what breaks them.

A comparison of a [recipe] with the library is the recipe's own: tests/recipes/test_NN.py.
"""

from pathlib import Path

import nbformat
import pytest

from cookbook.nbtools.cells import declared_parameters, read, read_results, recipe_source, run_recipe
from cookbook.nbtools.exercises import exercise_problems, with_answers
from cookbook.nbtools.form import form_problems
from cookbook.nbtools.index import failing_bands, load_index
from cookbook.nbtools.parameters import parameter_problems
from cookbook.nbtools.run import execute

INDEX = load_index()
BREAKS = [(number, broken) for number, entry in INDEX.items() for broken in entry.breaks_with]

# the wall limits of index.yml hold instead of pytest's own
pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(0)]
every_notebook = pytest.mark.parametrize("number", INDEX)


@every_notebook
def test_form(number):
    entry = INDEX[number]
    problems = form_problems(entry.path, entry.claim, entry.uses == "cookbook")
    assert not problems, "\n" + "\n".join(problems)


@every_notebook
def test_index_gives_parameters_that_the_notebook_has(number):
    entry = INDEX[number]
    declared = declared_parameters(read(entry.path))
    for given in [*entry.profiles.values(), *(broken.parameters for broken in entry.breaks_with)]:
        assert parameter_problems(declared, given) == []


@every_notebook
def test_recipe_runs_alone_and_has_a_test_that_compares_it(number):
    entry = INDEX[number]
    run_recipe(recipe_source(entry.path), allow_cookbook=entry.uses == "cookbook")
    keeper = Path(__file__).parent / "recipes" / f"test_{number}.py"
    assert keeper.is_file(), f"write {keeper}: it compares the recipe with the library"


@every_notebook
def test_ci_profile_runs_and_its_checks_tell_right_from_wrong(number, tmp_path):
    entry = INDEX[number]
    nb = with_answers(read(entry.path), entry.solutions.read_text(encoding="utf-8"))
    nbformat.write(nb, tmp_path / entry.file)
    executed = run(entry, "ci", tmp_path / entry.file, tmp_path)
    assert exercise_problems(executed) == []
    results = read_results(executed)
    assert results
    for band in entry.bands:
        band.value(results)  # the bands are for the fast profile; here they need only be there


@pytest.mark.slow
@every_notebook
def test_fast_profile_keeps_its_bands(number, tmp_path):
    entry = INDEX[number]
    failing = failing_bands(read_results(run(entry, "fast", entry.path, tmp_path)), entry.bands)
    assert not failing, "\n".join(failing.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "broken"), BREAKS, ids=[f"{number}-{broken.parameters}" for number, broken in BREAKS]
)
def test_what_must_break_the_claim_breaks_it(number, broken, tmp_path):
    entry = INDEX[number]
    results = read_results(run(entry, "fast", entry.path, tmp_path, broken.parameters))
    kept = set(broken.must_fail) - set(failing_bands(results, entry.bands))
    assert not kept, (
        f"with {broken.parameters} the bands {sorted(kept)} still hold: they prove nothing; results {results}"
    )


def run(entry, profile, notebook, folder, parameters=None):
    return execute(
        notebook,
        folder / "executed.ipynb",
        entry.profiles[profile] | (parameters or {}),
        profile=profile,
        wall_limit=entry.wall_limit[profile],
        cwd=entry.path.parent,
    )
