"""The command line helps, refuses in one line, and lets a person play."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def cookbook(*arguments, typed=""):
    command = [sys.executable, "-m", "cookbook", *arguments]
    return subprocess.run(command, input=typed, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("command", [[], ["recipe"], ["play"], ["games"]])
def test_help_says_what_there_is(command):
    run = cookbook(*command, "--help")
    assert run.returncode == 0
    assert "usage: cookbook" in run.stdout


@pytest.mark.parametrize(
    "command", ["cookbook", "cookbook recipe", "cookbook play", "cookbook games", "cookbook.tiny make"]
)
def test_help_waits_for_nothing_heavy(command):
    # catches: an import of torch or TextWorld at the top of a command: help would take seconds
    module, *words = command.split()
    code = (
        f"import sys\nfrom {module}.__main__ import main\nsys.argv[1:] = {[*words, '--help']}\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "sys.exit(', '.join({'torch', 'transformers', 'textworld', 'papermill'} & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (run.returncode, run.stderr) == (0, "")
    assert "usage: " in run.stdout


def test_playing_ends_with_the_typing():
    run = cookbook("play", typed="look\n")
    assert run.returncode == 0
    assert "Not won. Score 0 of 1." in run.stdout


def test_a_person_plays_a_game_to_its_end():
    plan = cookbook("play", typed="plan\nquit\n").stdout.split("> ")[1].splitlines()
    commands = [line for line in plan if line and not line.startswith("Not won")]
    run = cookbook("play", typed="sing\nhelp\n" + "\n".join(commands) + "\n")
    assert "That's not a verb I recognise." in run.stdout
    assert "You won. Score 1 of 1." in run.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["play", "--game", "cake"], "'cake'"),
        (["play", "--split", "exam"], "'exam'"),
        (["play", "--seed", "7"], "40001 to 40100"),
        (["play", "--turns", "0"], "turn_limit=0"),
        (["games", "w2-o3-q4", "exam"], "'exam'"),
        (["recipe", "-p", "sede", "3"], "did you mean 'seed'"),
        (["recipe", "-p", "iterations", "many"], "'iterations' must be int"),
        (["recipe", "--profile", "huge"], "'huge'"),
        (["games", "w2-o3-q4", "test", "-n", "1000"], "n=1000"),
    ],
)
def test_a_wrong_word_is_refused_in_one_line_with_the_way_out(arguments, words):
    run = cookbook(*arguments)
    assert run.returncode not in (0, None)
    assert words in run.stderr
    assert "Traceback" not in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
