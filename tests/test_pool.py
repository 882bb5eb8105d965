"""A worker that dies, hangs or raises costs its own episode; nothing is left behind on any way out."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cookbook.envs import env_class
from cookbook.envs.nursery import nursery
from cookbook.envs.pool import EnvError, EnvPool, map_clean
from cookbook.tasks import Task

TESTS = Path(__file__).parent


def tasks(n, **bad):
    return [Task("fake", f"moody/{i}", i, {"bad": bad[f"t{i}"]} if f"t{i}" in bad else {}) for i in range(n)]


def gone(pid, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def pids(results):
    return [int(r.info["signals"]["pid"]) for r in results if not isinstance(r, EnvError)]


@pytest.mark.parametrize("env", ["fake_envs:Moody", "fake_envs:MoodyHere"])
def test_every_episode_gets_its_own_answer(env):
    with EnvPool(env, {"turn_limit": 2}) as pool:
        starts = pool.reset(tasks(3))
        assert [start.observation for start in starts] == ["hello 0", "hello 1", "hello 2"]
        results = pool.step({0: "x" * 10_000, 2: "żółć\n\x00 \ud800 'quoted'"})
        assert results[0].observation == "x" * 10_000
        assert results[2].observation == "żółć\n\x00 \ud800 'quoted'"
        assert pool.step({0: "again"})[0].truncated is True
        assert pool.alive == 3
    assert pool.alive == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("crash", "signal 11"),
        ("exit", "exit code 7"),
        ("hang", "no answer in 1 s"),
        ("raise", "raised KeyError: 'no such thing'"),
        ("leave", "raised SystemExit: 3"),
    ],
)
def test_a_bad_step_costs_one_episode_and_says_what_happened(command, words):
    with EnvPool("fake_envs:Moody", call_timeout=1.0) as pool:
        started = pids(pool.reset(tasks(3)))
        results = pool.step({0: "fine", 1: command, 2: "fine"})
        assert isinstance(results[1], EnvError)
        assert words in results[1].text
        assert "moody/1" in results[1].text
        assert [results[0].observation, results[2].observation] == ["fine", "fine"]
        assert gone(started[1])
        assert pool.step({0: "on", 2: "on"})[2].observation == "on"
        assert not any(isinstance(start, EnvError) for start in pool.reset(tasks(3))), "the next batch is whole again"


def test_a_bad_start_costs_one_episode():
    with EnvPool("fake_envs:Moody", start_timeout=1.5) as pool:
        starts = pool.reset(tasks(4, t0="crash", t2="raise", t3="hang"))
        assert [isinstance(start, EnvError) for start in starts] == [True, False, True, True]
        assert pool.alive == 1


def test_an_exception_in_process_is_one_episode_too():
    """Fails for a pool that lets an environment's sys.exit() end the training run."""
    with EnvPool("fake_envs:MoodyHere") as pool:
        pool.reset(tasks(3))
        results = pool.step({0: "raise", 1: "fine", 2: "leave"})
        assert "KeyError" in results[0].text
        assert "SystemExit: 3" in results[2].text
        assert results[1].observation == "fine"
        assert pool.alive == 1


def test_workers_start_with_what_warm_put_into_the_cache():
    """Fails for a nursery that warms in a worker only, or once for each task."""
    with EnvPool("fake_envs:Warmed") as pool:
        kind = [Task("fake", f"warmed/{i}", i, {"warm": "fine"}) for i in range(3)]
        seen = {start.observation for start in [*pool.reset(kind), *pool.reset(kind)]}
        assert seen == {str([nursery().process.pid])}


@pytest.mark.parametrize("fault", ["crash", "hang", "raise", "exit", "leave"])
def test_a_warm_up_that_fails_costs_no_episode(fault):
    """Fails for a nursery that warms before a worker has tried it: one bad game would end the batch, or hang it."""
    with EnvPool("fake_envs:Warmed", start_timeout=1.0) as pool:
        kind = [Task("fake", f"warmed/{i}", i, {"warm": fault, "only": fault}) for i in range(2)]
        before = nursery().process.pid
        assert not any(isinstance(start, EnvError) for start in pool.reset(kind))
        assert nursery().process.pid == before


def test_no_process_is_left_after_an_exception_or_garbage_collection():
    left = []

    def fail():
        with EnvPool("fake_envs:Moody") as pool:
            left.extend(pids(pool.reset(tasks(2))))
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    forgotten = EnvPool("fake_envs:Moody")
    left += pids(forgotten.reset(tasks(2)))
    del forgotten
    gc.collect()
    assert all(gone(pid) for pid in left)


@pytest.mark.parametrize("way_out", ["exits", "is killed"])
def test_no_process_outlives_its_parent(way_out):
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from cookbook.envs.pool import EnvPool, nursery; from cookbook.tasks import Task\n"
        "pool = EnvPool('fake_envs:Moody'); starts = pool.reset([Task('fake', str(i), i) for i in range(2)])\n"
        "print(nursery().process.pid, *(int(s.info['signals']['pid']) for s in starts), flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(TESTS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=TESTS.parent,
    )  # fmt: skip
    left = parent.stdout.readline().split()
    assert len(left) == 3
    if way_out == "is killed":
        parent.kill()
    parent.communicate()
    assert all(gone(pid) for pid in left)


def test_ctrl_c_in_a_step_ends_every_process_and_leaves_no_stale_answer():
    """Fails for a pool that takes the interrupted command's late answer for that of the next command."""
    pool = EnvPool("fake_envs:Moody")
    left = pids(pool.reset(tasks(2)))
    threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        pool.step({0: "early", 1: "hang"})
    assert pool.alive == 0
    assert all(gone(pid) for pid in left)
    with pytest.raises(ValueError, match=r"episodes \[0\] are not open"):
        pool.step({0: "late"})
    pool.reset(tasks(1))
    assert pool.step({0: "new"})[0].observation == "new"
    pool.close()


def test_ctrl_c_in_a_fork_does_not_shift_later_answers(monkeypatch):
    """Fails for a nursery that goes on with the answer of the interrupted question still to be read."""
    with monkeypatch.context() as patch:
        patch.setattr("cookbook.envs.nursery._receive", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            EnvPool("fake_envs:Moody").reset(tasks(1))
    with EnvPool("fake_envs:Moody") as pool:
        assert pids(pool.reset(tasks(2))) == [pool.workers[0].pid, pool.workers[1].pid]


def test_a_pool_survives_the_death_of_its_nursery():
    with EnvPool("fake_envs:Moody") as pool:
        [pid] = pids(pool.reset(tasks(1)))
        process = nursery().process
        process.kill()
        process.wait()
        assert gone(pid), "a worker goes with its nursery"
        assert "died" in pool.step({0: "fine"})[0].text
        assert pool.reset(tasks(1))[0].observation == "hello 0"


@pytest.mark.parametrize("env", ["fake_envs:Moody", "fake_envs:MoodyHere"])
def test_an_idle_environment_is_closed_not_killed(env, tmp_path):
    """Fails for a pool that kills: an environment with a shell or a container would leave it behind."""
    note = tmp_path / "note"
    with EnvPool(env, {"goodbye": str(note)}) as pool:
        left = pids(pool.reset(tasks(2)))
        pool.close([0])
        assert pool.alive == 1
    assert env == "fake_envs:MoodyHere" or all(gone(pid) for pid in left)
    assert note.read_text() == "closed\n" * 2


def test_an_environment_that_hangs_while_closing_is_ended():
    with EnvPool("fake_envs:Moody", {"last_words": "hang"}) as pool:
        [pid] = pids(pool.reset(tasks(1)))
    assert gone(pid)


@pytest.mark.parametrize("env", ["fake_envs:Moody", "fake_envs:MoodyHere"])
def test_options_that_the_environment_refuses_are_told_in_every_episode(env):
    with EnvPool(env, {"nonsense": 1}) as pool:
        assert all("unexpected keyword argument 'nonsense'" in start.text for start in pool.reset(tasks(2)))


@pytest.mark.parametrize("env", ["fake_envs:Old", "fake_envs:OldHere"])
def test_an_answer_of_the_wrong_shape_is_one_episodes_error(env):
    with EnvPool(env) as pool:
        pool.reset(tasks(1))
        assert "TypeError" in pool.step({0: "fine"})[0].text


def test_an_environment_that_says_nothing_gets_a_process_of_its_own():
    with EnvPool("fake_envs:Plain") as pool:
        assert int(pool.reset(tasks(1))[0].observation) != os.getpid()


def test_workers_see_the_parents_variables_folder_and_path_as_they_are_now(monkeypatch, tmp_path):
    """Fails for a nursery that keeps those of its own start: COOKBOOK_CACHE set in a notebook would be ignored."""
    nursery().fork("fake_envs:variable")[0].close()
    monkeypatch.setenv("SET_LATER", "yes")
    monkeypatch.chdir(tmp_path)
    assert list(map_clean("fake_envs:variable", ["SET_LATER"])) == [(0, ("yes", str(tmp_path)))]
    (tmp_path / "module_made_later.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(map_clean("module_made_later:double", [4])) == [(0, 8)]


def test_workers_never_import_torch():
    import torch  # noqa: F401  this process has it

    with EnvPool("fake_envs:Moody") as pool:
        pool.reset(tasks(1))
        assert "torch imported: False" in pool.step({0: "torch"})[0].text


@pytest.mark.parametrize("module", ["cookbook.envs.pool", "cookbook.envs.textworld.env", "cookbook.tiny.play"])
def test_importing_environments_leaves_torch_out(module):
    """Fails for an import of torch at the top of anything that a worker needs: seconds, and 300 MB a fork."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent).returncode == 0


def test_unknown_environments_are_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"'chess'.*textworld, probe"):
        env_class("chess")
    with pytest.raises(ValueError, match="no_such_module"):
        EnvPool("no_such_module:Env")
    with pytest.raises(ValueError, match="call_timeout=0"):
        EnvPool("fake_envs:Moody", call_timeout=0)


def test_map_clean_gives_every_result_and_an_error_for_a_worker_that_died():
    found = dict(map_clean("fake_envs:square", range(8), workers=2, recycle=2))
    assert {i: r for i, r in found.items() if not isinstance(r, Exception)} == {i: i * i for i in (0, 1, 2, 4, 6, 7)}
    assert "item 3 died with signal 11" in str(found[3])
    assert "five" in str(found[5])


def test_map_clean_changes_processes_after_so_many_items_and_no_sooner():
    found = dict(map_clean("fake_envs:pid_of", range(6), workers=1, recycle=3))
    assert len({found[i] for i in (0, 1, 2)}) == 1
    assert len({found[i] for i in (3, 4, 5)}) == 1
    assert found[2] != found[3]
    assert os.getpid() not in found.values()


def test_map_clean_abandoned_half_way_ends_the_items_under_way():
    results = map_clean("fake_envs:sleep", [0, 1_000], workers=1)
    _, pid = next(results)
    results.close()
    assert gone(pid)


def test_map_clean_says_what_is_wrong_with_its_arguments():
    [(_, error)] = map_clean("fake_envs:no_such", [1])
    assert "'fake_envs:no_such' cannot be imported" in str(error)
    with pytest.raises(ValueError, match="workers=0"):
        next(map_clean("fake_envs:square", [1], workers=0))
