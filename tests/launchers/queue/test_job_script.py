"""The text of job scripts, and scripts that run: a fake sbatch runs them, fake apptainer and srun start the tasks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import place
from fake_slurm import install

from gnnexp.cli.main import run_command

__all__ = ["place"]

LAUNCHER = "hardware.launcher."
SMALL = ["dataset=digits", "model.hidden=8", "train.epochs=1", "train.batch_size=512", "tracker=none"]
# srun of one task: it drops its own options, of which a fake can check that they are there.
SRUN = r"""
case "$*" in *--container-image=*) echo pyxis $* >> $PLACE/asked;; esac

while [ "${1#-}" != "$1" ]; do
  case "$1" in --output|--error) shift 2;; *) shift;; esac
done
export SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=1
exec "$@"
"""
# apptainer: inside of the container there is Python and no SLURM.
APPTAINER = f"""echo apptainer $* >> $PLACE/asked
while [ "$1" != python3 ]; do shift; done; shift
exec env PATH=/usr/bin:/bin {sys.executable} "$@"
"""
OF_JOB = {"SLURM_JOB_ID": "4711", "SLURMD_NODENAME": "n1", "SLURM_JOB_NODELIST": "n1"}
# A job waits for the end of the job that it depends on, and is cancelled if that one fails.
SBATCH = r"""export SLURMD_NODENAME=n1 SLURM_JOB_NODELIST=n1 SLURM_JOB_ID=$((4711 + $(ls $PLACE/jobs | wc -l)))
job=$PLACE/jobs/$SLURM_JOB_ID; mkdir $job; cp $1 $job/script
before=$(sed -n 's/#SBATCH --dependency=afterok:\([0-9]*\)/\1/p' $job/script)
( if [ -n "$before" ]; then
    while [ ! -s $PLACE/jobs/$before/rc ]; do /bin/sleep 0.1; done
    [ $(cat $PLACE/jobs/$before/rc) = 0 ] || { touch $job/cancelled; exit; }
  fi
  bash $job/script; echo $? > $job/rc ) > $job/log 2>&1 &
echo "Submitted batch job $SLURM_JOB_ID"
"""
SQUEUE = """for job in $PLACE/jobs/*; do
[ -f $job/cancelled ] && echo "${job##*/}|CANCELLED|2026-11-24T19:05:45|DependencyNeverSatisfied"; done; exit 0"""


@pytest.fixture
def cluster(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a SLURM whose sbatch runs the script at once."""
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PLACE", str(place))
    install(place / "bin", "sinfo", "echo 'debug*|infinite|2|8|64000|gpu:a100:4'")
    install(place / "bin", "sbatch", SBATCH)
    install(place / "bin", "srun", SRUN)
    install(place / "bin", "apptainer", APPTAINER)
    install(place / "bin", "python3", f'exec {sys.executable} "$@"')
    install(place / "bin", "squeue", SQUEUE)
    (place / "jobs").mkdir()
    install(place / "bin", "scontrol", "echo scontrol $* >> $PLACE/asked; exit $REFUSES")
    install(place / "bin", "sleep", "exit 0")
    return place


def scripts(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What `--print-script` says."""
    assert run_command([*words, "--print-script", "--json"]) == 0
    found: list[str] = json.loads(capsys.readouterr().out)["scripts"]
    return found


def asked(cluster: Path) -> str:
    return (cluster / "asked").read_text() if (cluster / "asked").exists() else ""


@pytest.mark.parametrize(("memory", "line"), [("4", "--mem=4GB"), ("0.05", "--mem=52M"), ("1.5", "--mem=1536M")])
def test_sbatch_gets_whole_numbers(cluster: Path, capsys: pytest.CaptureFixture[str], memory: str, line: str) -> None:
    (script,) = scripts(capsys, "run", *SMALL, "hardware=slurm_cpu", "hydra.run.dir=run", f"{LAUNCHER}mem_gb={memory}")
    assert f"#SBATCH {line}\n" in script


def test_a_script_is_printed_and_nothing_is_submitted(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", *SMALL, "hardware=slurm_cpu", "hydra.run.dir=run"]
    (script,) = scripts(
        capsys, *words, f"{LAUNCHER}partition='debug,debug'", f"{LAUNCHER}time_min=2:30:00", f"{LAUNCHER}mem_gb=10G"
    )
    for line in ("--partition=debug,debug", "--time=2:30:00", "--mem=10G", "--job-name=gnnexp-run"):
        assert f"#SBATCH {line}\n" in script
    assert not Path("run").exists() and not list((cluster / "jobs").iterdir()) and not asked(cluster)
    assert run_command([*words, "--print-script"]) == 0 and capsys.readouterr().out.startswith("#!/bin/bash")
    assert run_command(["run", *SMALL, "--print-script"]) == 2 and "hardware=slurm_cpu" in capsys.readouterr().err


def test_the_script_of_a_sweep_is_an_array(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [{"overrides": [f"seed={seed}"]} for seed in range(3)]
    Path("three.yaml").write_text(
        json.dumps({"description": "three", "fixed": [*SMALL, "hardware=slurm_cpu"], "cases": cases})
    )
    (script,) = scripts(capsys, "sweep", "three.yaml")
    assert "#SBATCH --array=0-2%3" in script and not Path("runs").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "--gpus-per-task=1"),
        (["gpus=node"], "--gpus-per-node=4"),
        (["gpus=gres"], "--gres=gpu:4"),
        (["gpus=gres", "gpu_type=a100"], "--gres=gpu:a100:4"),
        (["gpu_type=a100"], "--gpus-per-task=a100:1"),
        (["gpus=node", "gpu_type=a100"], "--gpus-per-node=a100:4"),
    ],
)
def test_gpus_are_requested_in_three_ways(
    cluster: Path, capsys: pytest.CaptureFixture[str], options: list[str], line: str
) -> None:
    (script,) = scripts(
        capsys,
        "run",
        *SMALL,
        "hardware=slurm_gpu",
        "hardware.workers=4",
        f"{LAUNCHER}cpus_per_task=1",
        *(LAUNCHER + one for one in options),
    )
    requests = re.findall(r"^#SBATCH (--(?:gpus|gres).*)$", script, re.MULTILINE)
    assert requests == [line]


@pytest.mark.parametrize("container", ["apptainer", pytest.param("pyxis", marks=pytest.mark.slow)])
@pytest.mark.timeout(300)
def test_a_job_runs_in_a_container(cluster: Path, capsys: pytest.CaptureFixture[str], container: str) -> None:
    code = run_command(
        [
            "run",
            *SMALL,
            f"hardware=slurm_{container}",
            f"{LAUNCHER}image=gnnexp.image",
            "hydra.run.dir=run",
            f"{LAUNCHER}mounts=[/scratch]",
        ]
    )
    assert code == 0, capsys.readouterr().err + (cluster / "jobs/4711/log").read_text()
    calls = asked(cluster).splitlines()
    assert len(calls) == 2 and all("gnnexp.image" in call and "/scratch" in call for call in calls)
    assert "submitit.core._submit" in calls[0] and "gnnexp.cli.running.after_job" in calls[1], "both are inside"


def test_outside_of_a_container_there_is_no_python(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for container in ("apptainer", "pyxis"):
        (script,) = scripts(capsys, "run", *SMALL, f"hardware=slurm_{container}", f"{LAUNCHER}image=x")
        outside = [
            line
            for line in script.splitlines()
            if "python" in line and not re.search(r"apptainer exec|--container-image", line)
        ]
        assert outside == [] and sys.executable not in script


@pytest.mark.parametrize("refuses", [0, 1])
def test_the_shell_puts_the_job_of_a_container_back(
    cluster: Path, capsys: pytest.CaptureFixture[str], refuses: int
) -> None:
    """The ranks were stopped at the end of the job's time. SLURM accepts the request, or refuses it each time."""
    (script,) = scripts(capsys, "run", *SMALL, "hardware=slurm_apptainer", f"{LAUNCHER}image=x", "hydra.run.dir=run")
    install(cluster / "bin", "apptainer", 'echo $* >> $PLACE/asked; case "$*" in *refused) exit 1;; *) exit 85;; esac')
    done = subprocess.run(["bash", "-c", script], env=os.environ | OF_JOB | {"REFUSES": str(refuses)}, check=False)
    assert done.returncode == refuses
    assert asked(cluster).count("scontrol requeue 4711") == (13 if refuses else 1)
    assert ("refused" in asked(cluster)) == bool(refuses)


IN_A_JOB = [
    "run",
    *SMALL,
    "hardware=slurm_cpu",
    f"{LAUNCHER}prepare=job",
    f"{LAUNCHER}prepare_partition=debug",
    "hydra.run.dir=run",
]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_prepares_the_data_and_the_ranks_wait_for_it(
    cluster: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNEXP_CACHE", str(cluster / "cache"))
    first, second = re.split(r"(?=^#!/bin/bash$)", scripts(capsys, *IN_A_JOB)[0], flags=re.MULTILINE)[1:]
    assert "gnnexp-prepare-run" in first and "--partition=debug" in first
    assert "#SBATCH --dependency=afterok:JOB_OF_PREPARATION" in second and "#SBATCH --kill-on-invalid-dep=yes" in second
    monkeypatch.setattr("gnnexp.cli.running.execute.prepare", None)  # nothing is prepared in this process
    code = run_command(IN_A_JOB)
    logs = [(cluster / "jobs" / job / "log").read_text() for job in ("4711", "4712")]
    assert code == 0, capsys.readouterr().err + "".join(logs)
    assert json.loads(Path("run/job.json").read_text())["graph"] and Path("run/result.json").exists()


def test_a_refused_preparation_is_the_result_of_the_run(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(cluster / "bin", "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1")
    array = {"fixed": IN_A_JOB[1:-1], "axes": {"seed": [0, 1]}, "report": {"figures": []}}
    Path("array.yaml").write_text(json.dumps(array))
    assert run_command(IN_A_JOB) == 1 and run_command(["sweep", "array.yaml"]) == 1
    assert "gnnexp resume run" in capsys.readouterr().err
    runs = [Path("run"), *Path("runs/array").iterdir()]
    assert len(runs) == 3
    for run_dir in runs:
        result = json.loads((run_dir / "result.json").read_text())
        assert (result["status"], result["kind"]) == ("failed", "error")
        assert "sbatch refused the job that prepares the data" in result["reason"]
        assert "Invalid account" in result["reason"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_data_that_cannot_be_prepared_fails_the_run_and_says_why(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*IN_A_JOB, f"{LAUNCHER}mem_gb=0.01", "hardware.detach=true"]) == 0
    end = time.monotonic() + 200
    while not (cluster / "jobs/4712/cancelled").exists():
        assert time.monotonic() < end, (cluster / "jobs/4711/log").read_text()
        time.sleep(0.1)
    assert run_command(["status", "run"]) == 1
    assert "the data could not be prepared" in capsys.readouterr().out
    result = json.loads(Path("run/result.json").read_text())
    assert (result["status"], result["kind"]) == ("failed", "mistake") and "preflight" in result["reason"]
