"""MLflow makes its tables in a file, or upgrades them: `python -m gnnexp.trackers.migrate FILE`.

It is a process of its own, so that a command that only launches runs does not import MLflow. The file is never a
store in use, since an interrupted migration leaves it half made (`making.py`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Bring the tables in the file `arguments[0]` to the newest schema. If there is no file, all tables are made."""
    file, uri = Path(arguments[0]), f"sqlite:///{arguments[0]}"
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        if file.exists():
            from mlflow.db import commands

            commands(["upgrade", uri], standalone_mode=False)
        else:
            from mlflow import MlflowClient

            MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
    except Exception as error:  # errors of SQLAlchemy, alembic and MLflow have no common base
        print((str(error).strip().splitlines() or [repr(error)])[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
