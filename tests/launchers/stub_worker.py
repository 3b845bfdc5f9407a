"""What the launcher's tests run on every rank instead of gnnexp.worker: no torch, one behaviour per rank."""

import ctypes
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path


def report(run_dir: Path, state: str, **more: object) -> None:
    rank = int(os.environ["RANK"])
    line = {"rank": rank, "state": state, "time": time.time(), "host": socket.gethostname(), "phase": "forward", **more}
    temporary = run_dir / "status" / f".rank_{rank}.tmp"
    temporary.write_text(json.dumps(line))
    temporary.replace(run_dir / "status" / f"rank_{rank}.json")


def behave(name: str, run_dir: Path) -> None:
    if name == "raise":
        raise RuntimeError("the real cause")
    if name == "lose_peer":
        time.sleep(0.4)
        raise RuntimeError("Connection closed by peer [127.0.0.1]:4242")
    if name == "kill":
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "kill_in_a_beat":
        (run_dir / "status" / f".rank_{os.environ['RANK']}.json.{os.getpid()}.tmp").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "ignore_term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    if name == "long_step":
        told = []
        signal.signal(signal.SIGTERM, lambda *_: told.append(1))
        while not told:
            time.sleep(0.05)
        time.sleep(10)
        report(run_dir, "stopped", reason="SIGTERM")
        sys.exit(0)
    if name == "sleep":
        time.sleep(60)
    if name == "where":
        Path("was_here").touch()
    if name == "kill_parent":
        time.sleep(0.3)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if name in ("freeze_parent", "freeze_parent_and_die"):
        while len(list(run_dir.glob("pid_*"))) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.01)
        time.sleep(0.3)  # the last one was forked, and the parent has written its number
        os.kill(os.getppid(), signal.SIGSTOP)
    if name == "freeze_parent_and_die":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "finish_and_linger":  # as an interpreter that takes its time to end
        report(run_dir, "finished")
        (run_dir / "result.json").write_text('{"status": "finished"}')
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    if name == "environment":
        (run_dir / f"environment_{os.environ['RANK']}.json").write_text(json.dumps(dict(os.environ)))


def main() -> None:
    run_dir = Path(sys.argv[1])
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    name = json.loads((run_dir / "behaviour.json").read_text())[int(os.environ["RANK"])]
    (run_dir / f"pid_{os.environ['RANK']}").write_text(str(os.getpid()))
    (run_dir / "parent").write_text(str(os.getppid()))
    if name == "freeze_before_first_word":
        os.kill(os.getpid(), signal.SIGSTOP)
    report(run_dir, "running")
    if name == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    print("hello from", os.environ["RANK"])
    if name == "user_error":
        report(run_dir, "failed", reason="sampler.fanouts=[1]: too short", traceback="", exit_code=2)
        sys.exit(2)
    try:
        behave(name, run_dir)
    except RuntimeError as error:
        report(run_dir, "failed", reason=str(error), traceback=traceback.format_exc(), exit_code=1)
        sys.exit(1)
    report(run_dir, "finished")


if __name__ == "__main__":
    main()
