"""What a user installs is what we tested, and it finds its data wherever it lies."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and not line.startswith("#")]


def test_the_lock_holds_exact_versions_and_no_host_path_or_build_suffix():
    for line in LOCK:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*( ?;.*)?", line), line


def test_every_declared_dependency_is_locked_within_its_range():
    locked = {
        re.sub(r"[._-]+", "-", line.split("==")[0]).lower(): line.split("==")[1].split(";")[0].strip() for line in LOCK
    }
    for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(locked[requirement.name]), text


def test_conda_users_get_the_same_list():
    lines = (ROOT / "environment.yml").read_text()
    assert "-r requirements.lock" in lines
    assert not {Requirement(text).name for text in PROJECT["dependencies"]} & set(re.findall(r"[\w-]+", lines))


def test_a_wheel_installed_into_an_empty_folder_finds_model_and_games(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT], check=True, capture_output=True
    )
    [wheel] = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True, capture_output=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    code = (
        "import cookbook, sys; from cookbook.paths import data_dir; from cookbook.policy.load import find_model\n"
        "from cookbook.envs.textworld.games import textworld_tasks, make_game\n"
        "assert data_dir().is_relative_to(sys.argv[1]), data_dir()\n"
        "print(find_model('tiny'), make_game(textworld_tasks('w8-o3-q4', 'test', 1)[0]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(site), "COOKBOOK_CACHE": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, "-P", "-c", code, str(site)], cwd=empty, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "module", ["cookbook", "cookbook.envs.pool", "cookbook.envs.textworld.env", "cookbook.__main__"]
)
def test_workers_and_the_command_line_start_without_torch(module):
    code = f"import sys, {module}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
