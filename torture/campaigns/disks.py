"""Full and read-only disks, below the run, the cache or a sweep: readable errors, no half-made file, and runs go on.

A disk is a tmpfs of a random size, or a bind mount without write access, in a mount namespace of the storm's own: both
vanish with it. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gnnexp.training.checkpoint import checkpoint_folders
from torture import checks
from torture.campaigns.kills import recorded
from torture.campaigns.sweeps import NAME, compare_sweep, write_sweep
from torture.setups import Setup, random_setup
from torture.storm import DELIVERY_S, Command, Storm

_CLONE_NEWNS = 0x00020000
# For any run here: four checkpoints of Sancus on Cora with three ranks take 125 MB.
_ROOM_KB = 256_000
# What any of these messages has: the system's own words, or gnnexp's.
_FULL = ("space", "room", "disk", "quota")
_READ_ONLY = ("read-only", "rights", "written", "write")
# What commands say that have nothing to do for a run that was killed and has no result.
_NOTHING_TO_DO = ("no process of this machine", "of a run that has ended")


def run(storm: Storm) -> None:
    """One kind of disk; then everything compared."""
    if not _own_mounts():
        storm.numbers["disks_not_run"] += 1
        return
    storm.carry_out_one(_KINDS)


def _own_mounts() -> bool:
    """Whether this process now has a mount namespace of its own, in which it may mount."""
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        return False
    return subprocess.run(["mount", "--make-rprivate", "/"], check=False, capture_output=True).returncode == 0


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _small_disk(place: Path, kilobytes: int) -> None:
    place.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place))


def _make_room(place: Path) -> None:
    _mount("-o", f"remount,size={_ROOM_KB}k", str(place))


def _in_words(storm: Storm, command: Command, words: tuple[str, ...]) -> None:
    """A command that failed must say that it was the disk."""
    said = command.said().lower()
    if command.code not in (0, 1, 2):
        storm.problems.append(f"`gnnexp {command.name}` exits {command.code}: {said[-500:]}")
    elif command.code != 0 and not any(word in said for word in words):
        storm.problems.append(f"`gnnexp {command.name}` does not say that it was the disk: {said[-500:]}")


def _full_below_a_run(storm: Storm) -> None:
    setup, disk = random_setup(storm.random), storm.folder / "disk"
    storm.undisturbed(setup)
    kilobytes = storm.random.randrange(40, 900)
    _small_disk(disk, kilobytes)
    storm.history.append(f"{setup.name} on {kilobytes} kB")
    command = storm.run("run", *setup.overrides, "hydra.run.dir=disk/run", "preflight=warn")
    _in_words(storm, command, _FULL)
    storm.expect_quiet(DELIVERY_S)
    run_dir = disk / "run"
    if command.code != 0:
        storm.numbers["disks_full"] += 1
        storm.problems += checks.leftover_problems(disk)
    _make_room(disk)
    if not (run_dir / "job.json").exists():
        if run_dir.exists():
            storm.problems.append(f"left: {sorted(path.name for path in run_dir.iterdir())} without job.json")
        command, run_dir = storm.start("run", *setup.overrides, "hydra.run.dir=disk/again"), disk / "again"
        if storm.done(command) != 0:
            storm.problems.append(f"after making room: exit {command.code}: {command.said()[-500:]}")
            return
    _gone_on_with(storm, run_dir, setup, command)


def _full_below_the_cache(storm: Storm) -> None:
    setup, disk = random_setup(storm.random), storm.folder / "disk"
    storm.undisturbed(setup)
    _small_disk(disk, storm.random.randrange(20, 600))
    command = storm.start("run", *setup.overrides, "hydra.run.dir=run", cache=disk)
    storm.done(command)
    _in_words(storm, command, _FULL)
    if command.code != 0:
        storm.numbers["disks_full"] += 1
        if (storm.folder / "run").exists():
            storm.problems.append("a run directory is left though its data could not be prepared")
        _make_room(disk)
        command = storm.start("run", *setup.overrides, "hydra.run.dir=run", cache=disk)
        storm.done(command)
    if command.code != 0:
        storm.problems.append(f"after making room: exit {command.code}: {command.said()[-500:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    storm.problems += checks.leftover_problems(disk)
    storm.check_store([storm.folder / "run"])
    storm.compare(storm.folder / "run", setup)


def _full_below_a_sweep(storm: Storm) -> None:
    cases = write_sweep(storm, storm.random.choice(["dgl", "sancus"]))
    for case in cases:
        storm.undisturbed(case)
    disk = storm.folder / "runs"
    _small_disk(disk, storm.random.randrange(60, 2000))
    command = storm.start("sweep", f"{NAME}.yaml", "preflight=warn", spare=12)
    storm.done(command, 300)
    _in_words(storm, command, _FULL)
    storm.expect_quiet(DELIVERY_S)
    if command.code != 0:
        storm.numbers["disks_full"] += 1
        storm.problems += checks.leftover_problems(disk)
    _make_room(disk)
    command = storm.start("sweep", f"{NAME}.yaml", "preflight=warn", spare=12)
    if storm.done(command, 300) != 0:
        storm.problems.append(f"after making room: exit {command.code}: {command.said()[-500:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    compare_sweep(storm, cases, full_disk=True)


def _read_only_run(storm: Storm) -> None:
    setup = random_setup(storm.random)
    _begun(storm, setup)
    run_dir = storm.folder / "run"
    _mount("--bind", str(run_dir), str(run_dir))
    _mount("-o", "remount,bind,ro", str(run_dir))
    commands = [
        ["status", "run"],
        ["logs", "run"],
        ["report", "run"],
        ["report", "--sync", "run"],
        ["cancel", "run"],
        ["resume", "run"],
    ]
    for arguments in storm.random.sample(commands, 4):
        command = storm.run(*arguments)
        storm.numbers["commands_on_a_read_only_run"] += 1
        if arguments[0] == "status" and command.code != 0:
            storm.problems.append(f"status of a read-only run exits {command.code}: {command.said()[-500:]}")
        _in_words(storm, command, (*_READ_ONLY, *_NOTHING_TO_DO))
    subprocess.run(["umount", str(run_dir)], check=True)
    if storm.run("resume", "run").code != 0:
        storm.problems.append(f"resume of a run that was read-only: {storm.commands[-1].said()[-500:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    storm.check_store([run_dir])
    storm.compare(run_dir, setup)
    storm.numbers["kills_compared"] += storm.numbers["kills"]


def _begun(storm: Storm, setup: Setup) -> None:
    """A run that was killed after some epochs."""
    command = storm.start("run", *setup.overrides, "hydra.run.dir=run")
    epochs = storm.random.randrange(6)
    storm.until(lambda: recorded(storm.folder / "run") > epochs, command, 120)
    storm.send(signal.SIGKILL, "command", command)
    storm.done(command)
    storm.expect_quiet(DELIVERY_S)


def _filled_by_others(storm: Storm) -> None:
    """Another program fills the disk while ranks train, for some seconds or for good."""
    setup, disk = random_setup(storm.random), storm.folder / "disk"
    storm.undisturbed(setup)
    _small_disk(disk, _ROOM_KB)
    command = storm.start("run", *setup.overrides, "hydra.run.dir=disk/run")
    epochs, for_good = storm.random.randrange(10), storm.random.random() < 0.5
    if storm.until(lambda: recorded(disk / "run") > epochs, command, 120):
        _fill(disk / "ballast")
        storm.numbers["disks_filled"] += 1
        if not for_good:
            end = time.monotonic() + storm.random.uniform(0, 1)
            storm.until(lambda: time.monotonic() > end, command, 5)
            (disk / "ballast").unlink()
    storm.done(command)
    _in_words(storm, command, _FULL)
    storm.expect_quiet(DELIVERY_S)
    storm.problems += checks.leftover_problems(disk)
    (disk / "ballast").unlink(missing_ok=True)
    _gone_on_with(storm, disk / "run", setup, command)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def _gone_on_with(storm: Storm, run_dir: Path, setup: Setup, command: Command) -> None:
    """There is room again: the run goes on, and is the undisturbed one; checkpoints it could not write it has named."""
    if command.code != 0 and storm.run("resume", str(run_dir)).code != 0:
        storm.problems.append(f"after making room: {storm.commands[-1].said()[-500:]}")
        return
    storm.expect_quiet(DELIVERY_S)
    latest = next(iter(checkpoint_folders(run_dir)), None)
    if command.code == 0 and (latest is None or not latest.name.startswith(f"{setup.epochs:08d}-")):
        storm.finished_without_a_checkpoint(run_dir, setup)
    else:
        storm.check_store([run_dir])
        storm.compare(run_dir, setup)


_KINDS: Mapping[str, Callable[[Storm], None]] = {
    "full_below_a_run": _full_below_a_run,
    "full_below_the_cache": _full_below_the_cache,
    "full_below_a_sweep": _full_below_a_sweep,
    "read_only_run": _read_only_run,
    "filled_by_others": _filled_by_others,
}
