"""Storms with planted faults, in processes of their own: what leaves a process, breaks, or hangs is a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from torture.schedule import CAMPAIGNS, WEIGHTS, tasks

ROOT = Path(__file__).parents[2]


def of_own(code: str, *arguments: str, **variables: str) -> str:
    """What the code prints in an interpreter of its own: it adopts orphans, and ends all processes below it."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_FAMILY = """
import os, signal, time
from torture.processes import family
family.adopt_orphans()
ready, written = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(written, b"x")
            time.sleep(100)
        os._exit(0)
    os._exit(0)
os.read(ready, 1)
(left,) = family.left_after(0.5)
assert left.parent == os.getpid() and left.role == "other" and str(left.pid) in family.describe(left)
os.kill(left.pid, signal.SIGSTOP)
while not family.family()[0].stopped:
    time.sleep(0.01)
assert family.kill_all() >= 1 and family.family() == []
print("seen")
"""


@pytest.mark.interpreter
def test_no_process_escapes_its_storm():
    assert of_own(_FAMILY) == "seen\n"


_STORMS = """
import itertools, json, sys, types
from pathlib import Path
from torture import schedule
from torture.counts import Counts
from torture.processes import family
from torture.storm import Command, Storm

def planted(run):
    module = types.ModuleType("planted")
    module.run = run
    return module

def orphan(storm):
    import os, time
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(100)
        os._exit(0)
    storm.numbers["kills"] += 1
    time.sleep(0.1)
    storm.expect_quiet(0.3)

def breaks(storm):
    raise KeyError("nothing")

def hangs(storm):
    import os, time
    pid = os.fork()
    if pid == 0:
        time.sleep(100)
    Command(pid, "run", storm.folder / "log").wait(0.3)

def no_inputs(seconds, seed, folder, kinds):
    return Counts({"fuzz/datasets/inputs": 0})

def dies(storm):
    import os
    os._exit(3)

def right(storm):
    storm.numbers["kills"] += 2
    storm.expect_quiet(5)

names = ("orphan", "breaks", "hangs", "dies", "right")
for name in names:
    sys.modules[f"torture.campaigns.{name}"] = planted(globals()[name])
sys.modules["torture.fuzz.campaign"] = types.ModuleType("planted")
sys.modules["torture.fuzz.campaign"].fuzz = no_inputs
family.adopt_orphans()
tell = lambda task, counts, seconds: None
if sys.argv[2] == "stop":
    def tell(task, counts, seconds):
        raise KeyboardInterrupt
    counts = schedule.run_all([iter([schedule.Task("right", 1)])], Path(sys.argv[1]), 60, tell)
else:
    both = [iter([schedule.Task(name, seed)]) for seed, name in enumerate((*names, "fuzz"))]
    counts = schedule.run_all(both, Path(sys.argv[1]), 60, tell)
print(json.dumps([counts.to_json(), len(family.family())]))
"""


@pytest.mark.interpreter
def test_planted_faults_are_failures(tmp_path):
    counts, left = json.loads(of_own(_STORMS, str(tmp_path), "all"))
    said = {failure["campaign"]: failure["what"] for failure in counts["failures"]}
    assert set(said) == {"orphan", "breaks", "hangs", "dies", "fuzz"} and left == 0
    assert "processes live" in said["orphan"] and "KeyError" in said["breaks"]
    assert "`gnnexp run` lives" in said["hangs"] and "ended with 3" in said["dies"]
    assert "no input was tried" in said["fuzz"]
    assert counts["numbers"]["kills"] == 3 and counts["numbers"]["orphans"] == 1
    hows = {failure["how"] for failure in counts["failures"]}
    assert "python -m torture orphan --seed 0" in hows


@pytest.mark.interpreter
def test_ctrl_c_keeps_the_counts(tmp_path):
    counts, left = json.loads(of_own(_STORMS, str(tmp_path), "stop"))
    assert counts["numbers"] == {"kills": 2, "storms_right": 1} and left == 0


def test_a_seed_draws_the_same_storms():
    first, again, other = (list(islice(tasks(seed, CAMPAIGNS), 500)) for seed in (1, 1, 2))
    assert first == again != other
    assert {task.campaign for task in first} == set(WEIGHTS)
    assert list(tasks(1, ["fuzz"])) == [], "the fuzzers have a source of their own"
    assert len({task.seed for task in first}) == 500
    assert first[0].how == f"python -m torture {first[0].campaign} --seed {first[0].seed}"


_WARM = """
import os, sys, time
from pathlib import Path
from torture.processes import warm
import subprocess
real = subprocess.Popen
warm._take_spare(1)
assert subprocess.Popen is warm.WarmPopen
with open(sys.argv[1], "wb") as log:
    started = subprocess.Popen([sys.executable, "-m", "gnnexp.launchers.starter", "gnnexp.launchers.base"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                               env={**os.environ, "PLANTED": "1"}, bufsize=0)
while Path(f"/proc/{started.pid}/comm").read_text() != "starter\\n":
    time.sleep(0.01)
assert Path(f"/proc/{started.pid}/stat").read_text().split()[3] == str(os.getpid())
assert os.getsid(started.pid) == started.pid
started.stdin.close()
assert started.wait(60) == 0
done = subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True, text=True)
assert done.stdout == "5\\n"
print("right")
"""


@pytest.mark.interpreter
def test_a_fork_takes_the_place_of_an_interpreter(tmp_path):
    """With the same parent, pipes and session as the real one has; it ends when its input does."""
    assert of_own(_WARM, str(tmp_path / "log")) == "right\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("campaign", ["kills", "sweeps", "peers", "memory", "strangers", "stores"])
@pytest.mark.interpreter
def test_a_storm(tmp_path, campaign):
    command = [sys.executable, "-m", "torture", campaign, "--seed", "2"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs_compared" in done.stdout or f"{campaign}_not_run" in done.stdout
