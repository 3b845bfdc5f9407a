"""A launching process of its own, for tests that end it: `python launch_driver.py RUN_DIR NUM_RANKS`."""

import signal
import sys
from pathlib import Path

from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.local import LocalLauncher

if __name__ == "__main__":
    hardware = HardwareConfig(workers=int(sys.argv[2]), timeout_s=30)
    outcome = LocalLauncher("stub_worker").launch(Path(sys.argv[1]), hardware)
    # Tests that ask again and again want the answer of this launch.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print(outcome.message, flush=True)
    sys.exit(outcome.exit_code)
