"""A rank that trains nothing and fails at its first attempt, for every sixth seed; FAILS_ALWAYS names seeds that never
finish, and PRETENDED_S says how long it takes."""

import json
import os
import sys
import time
from pathlib import Path

from run_folder import write_epochs, write_result

EVERY = 6


def main() -> int:
    run_dir, rank = Path(sys.argv[1]), os.environ["RANK"]
    seed = json.loads((run_dir / "job.json").read_text())["config"]["seed"]
    mark = run_dir / f"attempted_{rank}"
    again = mark.exists()
    mark.touch()
    time.sleep(float(os.environ.get("PRETENDED_S", "0")))
    fails = (seed % EVERY == 0 and not again) or str(seed) in os.environ.get("FAILS_ALWAYS", "").split(",")
    if rank == "0" and not fails:
        write_epochs(run_dir, 2 + seed)
        write_result(run_dir)
    reason = "the network was away"
    state = {"rank": int(rank), "state": "failed" if fails else "finished", "time": time.time(), "reason": reason}
    (run_dir / "status" / f"rank_{rank}.json").write_text(json.dumps(state))
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
