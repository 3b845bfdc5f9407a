"""External commands below the whole command line: ranks, stops, kills, resumes, sweeps of edited scripts."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from command_line import place, start  # noqa: F401  a fixture
from launching import gone, wait_until

from gnnexp.cli.main import run_command
from gnnexp.record.records import load_result, read_epochs

BEGIN = """
import json, os, subprocess, sys, time
rank = int(os.environ.get("RANK", "0"))
scratch = os.environ["GNNEXP_SCRATCH"]

def report(epoch, **more):
    with open(os.environ["GNNEXP_EPOCHS"], "a") as file:
        file.write(json.dumps({"epoch": epoch, **more}) + "\\n")

def note(name, text):
    with open(f"{scratch}/.{name}", "w") as file:
        file.write(str(text))
    os.rename(f"{scratch}/.{name}", f"{scratch}/{name}")

"""
# Every rank has a child in a session of its own, and hangs after its first epoch in the first attempt.
HANGS_ONCE = """
if not os.path.exists(f"{scratch}/second"):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    note(f"child_{rank}", child.pid)
    note(f"command_{rank}", os.getpid())
    report(0)
    time.sleep(600)
report(0); report(1)
"""


def words(body: str, *overrides: str) -> list[str]:
    Path("script.py").write_text(BEGIN + body)
    return [
        "paradigm=external",
        "paradigm.command=[python,script.py]",
        "dataset=digits",
        "tracker=none",
        "hardware.device=cpu",
        "train.epochs=2",
        "hardware.workers=2",
        "hydra.run.dir=run",
        *overrides,
    ]


def processes(scratch: Path) -> list[int]:
    names = [f"{kind}_{rank}" for kind in ("child", "command") for rank in (0, 1)]
    assert wait_until(lambda: all((scratch / name).exists() for name in names), 120)
    return [int((scratch / name).read_text()) for name in names]


@pytest.fixture(autouse=True)
def here(place: Path) -> Path:  # noqa: F811
    return place


# How two ranks tell each other `mine`; both then have `numbers`. Two processes that import torch take seconds.
MEETING = {
    "torch": """
import torch.distributed as dist
dist.init_process_group("gloo")
numbers = [None] * 2
dist.all_gather_object(numbers, mine)
dist.destroy_process_group()
""",
    "sockets": """
import socket
assert os.environ["WORLD_SIZE"] == "2"
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(place) as server:
        other = server.accept()[0]
else:
    for _ in range(600):
        try:
            other = socket.create_connection(place)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
with other, other.makefile("rw") as stream:
    print(json.dumps(mine), file=stream, flush=True)
    numbers = sorted([mine, tuple(json.loads(stream.readline()))])
""",
}


@pytest.mark.parametrize("meeting", [pytest.param("torch", marks=pytest.mark.slow), "sockets"])
def test_two_ranks_meet_and_get_a_partition(capfd: pytest.CaptureFixture[str], meeting: str) -> None:
    body = f"""
import numpy as np
mine = os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["GNNEXP_SEED"]
{MEETING[meeting]}
assert numbers == [("0", "0", "3"), ("1", "1", "3")]
owner = np.load(os.environ["GNNEXP_PARTITION"] + "/node_owner.npy")
assert set(owner) == {{0, 1}}
report(0, loss=1.0, **{{"acc/test": 0.5}})
print("hello from rank", rank)
"""
    assert run_command(["run", *words(body, "paradigm.partition=true", "seed=3")]) == 0
    assert "hello from rank 1" in Path("run/logs/rank_1.log").read_text()
    result = load_result(Path("run"))
    assert result["status"] == "finished" and result["partition"] and len(result["epochs"]) == 1
    assert result["provenance"]["inputs"]["paradigm.command"] and len(result["nodes"]) == 1
    assert "best checkpoint" not in capfd.readouterr().err and "model is lost" not in capfd.readouterr().out
    assert run_command(["report", "run"]) == 0


def test_one_command_for_the_run() -> None:
    body = "assert 'RANK' not in os.environ and os.environ['GNNEXP_RANKS'] == '2'; report(0)"
    assert run_command(["run", *words(body, "paradigm.processes=run")]) == 0
    assert len(read_epochs(Path("run"))) == 1


def test_a_rank_that_dies_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    body = "report(0)\nif rank == 1: sys.exit('this rank gives up')\nnote('command_0', os.getpid()); time.sleep(600)"
    assert run_command(["run", *words(body)]) == 1
    result = load_result(Path("run"))
    assert result["status"] == "failed" and "rank 1" in result["reason"] and "gives up" in result["reason"]
    assert "gives up" in capfd.readouterr().err
    if (command := Path("run/external/command_0")).exists():
        assert wait_until(lambda: gone(int(command.read_text())), 30)


def test_nonsense_is_a_mistake_of_the_user(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", *words("report(0, accuracy=0.9); time.sleep(600)")]) == 2
    said = capfd.readouterr().err
    assert "line 1: accuracy" in said and "Traceback" not in said


@pytest.mark.parametrize(
    "how", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.slow), pytest.param("cancel", marks=pytest.mark.slow)]
)
def test_a_stop_ends_all_processes_and_the_run_is_resumed(here: Path, how: str) -> None:
    process = start("run", *words(HANGS_ONCE))
    scratch = here / "run" / "external"
    found = processes(scratch)
    assert wait_until(lambda: len(read_epochs(Path("run"))) == 1, 30)
    if how == "cancel":
        assert run_command(["cancel", "run"]) == 0
    else:
        process.send_signal(signal.Signals[how])
    process.communicate(timeout=200)
    assert wait_until(lambda: all(map(gone, found)), 30)
    if how != "SIGKILL":
        assert load_result(Path("run"))["status"] == "failed" and process.returncode not in (0, 1, 2)
    (scratch / "second").touch()
    second = start("resume", "run")
    said, _ = second.communicate(timeout=200)
    assert second.returncode == 0 and "paradigm.resumes=false" in said, said
    assert [line["epoch"] for line in read_epochs(Path("run"))] == [0, 1]
    assert load_result(Path("run"))["paradigm"]["external"]["began_again_at"] == [1]


@pytest.mark.slow
def test_an_edited_script_is_no_resumed_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", *words("report(0)\nif rank: sys.exit('no')")]) == 1
    words("report(0)")
    assert run_command(["resume", "run"]) == 2 and "has changed since the run began" in capfd.readouterr().err


@pytest.mark.slow
def test_a_sweep_runs_an_edited_script_again(capfd: pytest.CaptureFixture[str]) -> None:
    overrides = [word for word in words("report(0)\nimport part", "hardware.workers=1") if "hydra" not in word]
    Path("part.py").write_text("x = 1\n")
    Path("compare.yaml").write_text(
        json.dumps(
            {
                "description": "an external system",
                "fixed": overrides,
                "axes": {"seed": [0]},
                "report": {"rows": ["seed"]},
            }
        )
    )

    def swept() -> int:
        assert run_command(["sweep", "compare.yaml"]) == 0
        return len(list(Path("runs").rglob("result.json")))

    assert swept() == 1
    assert swept() == 1, "finished before"
    Path("part.py").write_text("x = 2\n")
    assert swept() == 2
    assert "external system: not checked by gnnexp" in Path("reports/compare/report.html").read_text()
