"""The notebook frame, on throw-away notebooks: runs, parameters, results, exercises, the command, the page."""

import base64
import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import papermill
import pytest
from nbtools_samples import (
    CHECK,
    EXERCISE,
    PARAMETERS,
    PIXEL,
    ROW,
    SETUP,
    SOLUTIONS,
    good_notebook,
    notebook,
    run_good_notebook,
    write_index,
)

from cookbook.nbtools import __main__ as command
from cookbook.nbtools import check_exercise, check_parameters, emit_results, index
from cookbook.nbtools.cells import code_hash, declared_parameters, read, read_results
from cookbook.nbtools.exercises import exercise_problems, with_answers
from cookbook.nbtools.export import export
from cookbook.nbtools.index import load_index
from cookbook.nbtools.inside import RESULTS_MIME
from cookbook.nbtools.parameters import fits, parameter_problems, parse_value
from cookbook.nbtools.run import KERNELSPEC, NotebookFailed, execute, tidy


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    return run_good_notebook(tmp_path_factory.mktemp("good"))


# what a run leaves


def test_results_come_back_as_they_were_emitted(executed):
    assert read_results(executed) == {
        "gain": pytest.approx(0.2),
        "threads": "1",
        "backend": "module://matplotlib_inline.backend_inline",
    }


def test_a_run_is_stamped_and_holds_no_timings_and_no_progress_bars(executed):
    text = executed.read_text()
    assert "papermill" not in text
    assert "iopub" not in text
    assert "%|" not in json.dumps(read(executed).cells[8].outputs)
    stamp = read(executed).metadata["cookbook"]
    assert stamp["code"] == code_hash(good_notebook())
    assert stamp["profile"] == "fast"
    assert stamp["seconds"] >= 0
    assert "said" in text


def test_tidy_joins_streams_and_keeps_only_the_last_state_of_a_line():
    nb = notebook(("", "x"))
    pieces = [
        ("stdout", "a\rb"),
        ("stdout", "c\n"),
        ("stderr", "\r 10%|#  |"),
        ("stderr", "\r100%|###|\n7game [00:01, 5.1game/s]\n"),
        ("stdout", "kept"),
    ]
    nb.cells[0].outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in pieces]
    tidy(nb)
    assert [(output.name, output.text) for output in nb.cells[0].outputs] == [("stdout", "bc\n"), ("stdout", "kept")]


def test_parameters_reach_the_cells_and_what_they_print_streams(tmp_path, capsys):
    path = tmp_path / "10_small.ipynb"
    notebook(("parameters", PARAMETERS), ("setup", SETUP), ("", "print(updates, rate, model)"), path=path)
    nb = execute(path, tmp_path / "out.ipynb", {"updates": 7, "model": 'a "b" \\n'}, profile="ci", wall_limit=100)
    assert '7 0.1 a "b" \\n' in capsys.readouterr().out
    assert nb.metadata["cookbook"]["profile"] == "ci"
    assert path.read_text().count("# Parameters") == 0


# parameters


def test_plain_papermill_with_bad_parameters_stops_in_setup(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(command.__file__).parents[2]))
    path = tmp_path / "10_small.ipynb"
    notebook(("parameters", PARAMETERS), ("setup", SETUP), ("", "open('reached', 'w')"), path=path)
    settings = {"kernel_name": "python3", "language": "python", "progress_bar": False, "cwd": str(tmp_path)}
    with pytest.raises(papermill.PapermillExecutionError) as error:
        papermill.execute_notebook(str(path), None, {"updaets": 3, "updates": 1e-3}, **settings)
    assert "did you mean 'updates'" in error.value.evalue
    assert "must be int, got 0.001" in error.value.evalue
    assert not (tmp_path / "reached").exists()


def test_execute_refuses_bad_parameters_before_it_writes_anything(tmp_path):
    path = tmp_path / "10_small.ipynb"
    notebook(("parameters", PARAMETERS), path=path)
    with pytest.raises(
        ValueError, match=r"unknown parameter 'updaets': did you mean 'updates'.*'rate' must be float, got 'x'"
    ):
        execute(path, tmp_path / "out.ipynb", {"updaets": 3, "rate": "x"})
    assert not (tmp_path / "out.ipynb").exists()


def test_papermill_reads_the_same_parameters_as_we_do(tmp_path):
    path = tmp_path / "10_small.ipynb"
    nb = notebook(("parameters", PARAMETERS))
    nb.metadata["kernelspec"] = KERNELSPEC
    nbformat.write(nb, path)
    seen = papermill.inspect_notebook(str(path))
    assert {name: parameter["inferred_type_name"] for name, parameter in seen.items()} == declared_parameters(nb)


def test_setup_takes_what_is_declared_and_ignores_the_readers_own_variables():
    namespace = {"__annotations__": {"updates": int}, "updates": 3, "mine": 4, "In": ["", "mine = 4"]}
    check_parameters(namespace)
    with pytest.raises(ValueError, match="unknown parameter 'mine'"):
        check_parameters(namespace | {"In": ["", "# Parameters\nmine = 4\n"]})


@pytest.mark.parametrize(
    ("value", "annotation", "good"),
    [
        (3, "int", True), (3, "float", True), (3.0, "int", False), (True, "int", False), (True, "bool", True),
        (1, "bool", False), (float("nan"), "float", False), ([1, 2], "list[int]", True), ([1, "2"], "list[int]", False),
        (None, "int | None", True), (None, "int", False), ("a", "str", True), ({}, "dict", True),
    ],
)  # fmt: skip
def test_a_value_fits_its_annotation_or_does_not(value, annotation, good):
    assert fits(value, annotation) is good
    assert bool(parameter_problems({"p": annotation}, {"p": value})) is not good


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("1e-3", "float", 0.001), ("40", "str", "40"), ("40", "int", 40), ("true", "bool", True),
        ("True", "bool", True), ("[1, 2]", "list[int]", [1, 2]), ("None", "str | None", None),
        ("Qwen/Qwen2.5", "str", "Qwen/Qwen2.5"), ("no", "str", "no"), ("x", "int", "x"),
    ],
)  # fmt: skip
def test_a_command_line_value_is_read_as_its_parameter_wants(text, annotation, value):
    assert parse_value(text, annotation) == value


# a run that does not end well


def test_a_failing_cell_is_told_and_the_partial_notebook_kept(tmp_path):
    path = tmp_path / "10_small.ipynb"
    notebook(("", "print('first')"), ("", "1 / 0"), ("", "print('third')"), path=path)
    with pytest.raises(NotebookFailed, match=r"cell \[2\] raised ZeroDivisionError(.|\n)*out.ipynb"):
        execute(path, tmp_path / "out.ipynb", stream=False)
    kept = (tmp_path / "out.ipynb").read_text()
    assert "first\\n" in kept
    assert "third\\n" not in kept


def test_at_the_wall_limit_a_cell_is_interrupted_and_then_killed(tmp_path):
    stubborn = (
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nwhile True:\n"
        "    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        print('interrupted', flush=True)"
    )
    path = tmp_path / "10_small.ipynb"
    notebook(("", stubborn), path=path)
    began = time.monotonic()
    with pytest.raises(NotebookFailed, match="wall limit of 8 s"):
        execute(path, tmp_path / "out.ipynb", wall_limit=8, grace=1, stream=False)
    assert time.monotonic() - began < 40
    assert "interrupted" in (tmp_path / "out.ipynb").read_text()
    assert not alive(int((tmp_path / "pid").read_text()))


def test_ctrl_c_lets_the_cell_save_and_stops_the_kernel(tmp_path):
    saving = (
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    open('saved', 'w').close()\n    raise"
    )
    path = tmp_path / "10_small.ipynb"
    notebook(("", saving), ("", "open('next', 'w')"), path=path)
    threading.Thread(target=interrupt_when, args=(tmp_path / "pid",), daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="Ctrl-C"):
        execute(path, tmp_path / "out.ipynb", wall_limit=60, stream=False)
    assert (tmp_path / "saved").exists()
    assert not (tmp_path / "next").exists()
    assert not alive(int((tmp_path / "pid").read_text()))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def interrupt_when(path):
    while not path.exists() or not path.read_text():
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# results


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({}, "no results"), ({"a": float("nan")}, "'a' is nan"), ({"a": float("inf")}, "'a' is inf"),
        ({"a": {"b": 1}}, "'a' is a dict"), ({"a": None}, "'a' is a NoneType"), ({"a b": 1}, "'a b' is not a name"),
    ],
)  # fmt: skip
def test_results_that_no_band_could_read_are_refused(results, message):
    with pytest.raises(ValueError, match=message):
        emit_results(results)


def test_results_outside_a_notebook_are_printed(capsys):
    emit_results({"gain": 0.123456, "ok": True})
    assert capsys.readouterr().out == "gain  0.1235\nok    True\n"


def test_a_notebook_with_no_results_or_two_is_refused(executed):
    with pytest.raises(ValueError, match="0 results outputs"):
        read_results(good_notebook())
    nb = read(executed)
    nb.cells[1].outputs = [nbformat.v4.new_output("display_data", {RESULTS_MIME: {"gain": 1}})]
    with pytest.raises(ValueError, match="2 results outputs"):
        read_results(nb)


# exercises


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (lambda a, b: [a + b, 0.3], "ok: <lambda>, 2 cases\n"),
        (lambda a, b: (a + b, 0.1 + 0.2), "ok: <lambda>, 2 cases\n"),
        (lambda a, b: (3, 0.3), "wrong: <lambda>(5, 5) gives (3, 0.3), expected (10, 0.3)\nhint: add\n"),
        (lambda a, b: (a + b, 0.31), "wrong: <lambda>(1, 2) gives (3, 0.31), expected (3, 0.3)\nhint: begin\n"),
        (lambda a, b: 3, "wrong: <lambda>(1, 2) gives 3, expected (3, 0.3)\nhint: begin\n"),
        (lambda a, b: a / 0, "wrong: <lambda>(1, 2) raises ZeroDivisionError: division by zero\nhint: begin\n"),
        (lambda a, b: None, "to do: <lambda>\n"),
        (lambda a, b: ..., "to do: <lambda>\n"),
    ],
)
def test_a_check_says_to_do_wrong_or_ok(answer, verdict, capsys):
    check_exercise(answer, [((1, 2), (3, 0.3)), ((5, 5), (10, 0.3))], hints=["begin", "add"])
    assert capsys.readouterr().out == verdict


def test_answers_are_tried_after_each_check_and_a_check_that_misjudges_is_named(tmp_path):
    path = tmp_path / "10_small.ipynb"
    too_kind = "check_exercise(double, [((2,), 4)])"  # 2 * 2 is 2 + 2: the wrong answer passes
    cells = [("setup", SETUP), ("", "offset = 0"), ("exercise", EXERCISE), ("exercise-check", CHECK)]
    nb = with_answers(notebook(*cells, ("exercise", EXERCISE), ("exercise-check", too_kind)), SOLUTIONS)
    nbformat.write(nb, path)
    problems = exercise_problems(execute(path, tmp_path / "out.ipynb", stream=False))
    assert problems == ["double: its check must say 'wrong:' to the wrong, and says 'ok: wrong_double, 1 cases'"]


def test_a_missing_answer_is_named():
    with pytest.raises(ValueError, match="does not define wrong_double"):
        with_answers(good_notebook(), "def solution_double(x):\n    return 2 * x")


# the command and the page


@pytest.fixture
def shelf(tmp_path, monkeypatch, executed):
    """A notebooks folder with one notebook, and a kernel that is a copy of an earlier run."""
    nbformat.write(good_notebook(), tmp_path / "10_good.ipynb")
    write_index(tmp_path / "index.yml", ROW)
    monkeypatch.setattr(index, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(command, "load_index", lambda: load_index(tmp_path / "index.yml"))
    monkeypatch.chdir(tmp_path)

    def fake_execute(notebook, out, parameters, **settings):
        out.parent.mkdir(exist_ok=True)
        nb = read(executed)
        nb.metadata["seen"] = parameters
        nbformat.write(nb, out)
        return nb

    monkeypatch.setattr(command, "execute", fake_execute)
    return tmp_path


def test_the_fast_profile_is_stored_in_place(shelf, capsys):
    assert command.main(["run", "10"]) == 0
    assert read_results(shelf / "10_good.ipynb")["gain"] == pytest.approx(0.2)
    assert "every band kept" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--profile", "ci"], ["-p", "rate", "1e-3"]])
def test_any_other_run_goes_to_runs(options, shelf):
    before = (shelf / "10_good.ipynb").read_text()
    assert command.main(["run", "10", *options]) == 0
    assert (shelf / "10_good.ipynb").read_text() == before
    (out,) = (shelf / "runs").iterdir()
    assert read(out).metadata["seen"] == ({"rate": 0.001} if "-p" in options else {"updates": 1})


def test_a_wrong_command_is_told_in_one_line(shelf, capsys):
    assert command.main(["run", "99"]) == 2
    assert "no notebook '99'" in capsys.readouterr().err
    assert command.main(["run", "10", "--profile", "gpu"]) == 2
    assert "no profile 'gpu'" in capsys.readouterr().err
    assert command.main(["check"]) == 1
    assert "no stamp: python -m cookbook.nbtools run 10" in capsys.readouterr().out


def test_a_notebook_becomes_one_page_and_its_figures(executed, tmp_path):
    page, figure = export(executed, tmp_path / "page")
    html = page.read_text()
    assert page.name == "10_good.html"
    assert figure.name == "10_good-figure-1.png"
    assert figure.read_bytes() == base64.b64decode(PIXEL)
    assert PIXEL[:40] in html
    assert 'src="http' not in html
    assert "cdnjs" not in html


def test_a_page_with_formulas_brings_mathjax(executed, tmp_path):
    nb = read(executed)
    nb.cells[0].source += "\n\n$x$"
    nbformat.write(nb, tmp_path / "10_math.ipynb")
    assert "MathJax" in export(tmp_path / "10_math.ipynb", tmp_path)[0].read_text()


def test_an_entry_knows_where_its_files_are(shelf):
    entry = load_index(shelf / "index.yml")["10"]
    assert entry.path == shelf / "10_good.ipynb"
    assert entry.solutions == shelf / "solutions" / "10.py"
    assert replace(entry, file="99_x.ipynb").number == "99"
