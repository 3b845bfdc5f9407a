"""A rank that trains nothing, for tests of what happens around the ranks: it writes what a worker writes."""

import json
import os
import sys
import time
from pathlib import Path

from run_folder import write_epochs, write_result


def main() -> int:
    run_dir, rank = Path(sys.argv[1]), os.environ["RANK"]
    config = json.loads((run_dir / "job.json").read_text())["config"]
    fails = config["optimizer"]["lr"] > 1
    if rank == "0" and not fails:
        write_epochs(run_dir, 2 + config["seed"])
        write_result(run_dir)
    state = {"rank": int(rank), "state": "failed" if fails else "finished", "time": time.time(), "reason": "too fast"}
    (run_dir / "status" / f"rank_{rank}.json").write_text(json.dumps(state))
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
