"""Keep the parts of a DistDGL folder for `partitioner=stored`.

`python -m gnnexp.datasets.formats.dgl.save_partition OUT dataset.path=FOLDER [dataset.KEY=VALUE ...]` writes the folder
OUT. The overrides are those of the run: a partition belongs to one graph.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from gnnexp.datasets.formats.dgl.dgl_partitions import DglPartitions
from gnnexp.errors import ConfigError, DataError, Problem


def main(arguments: Sequence[str]) -> int:
    """Write the partition; the exit code is 2 for a mistake."""
    out, overrides = arguments[0] if arguments else "", arguments[1:]
    try:
        if not out or not all(override.startswith("dataset.") and "=" in override for override in overrides):
            raise ConfigError(
                Problem(
                    "arguments",
                    list(arguments),
                    "OUT and overrides dataset.KEY=VALUE",
                    "save_partition OUT dataset.path=FOLDER",
                )
            )
        pairs = (override.removeprefix("dataset.").split("=", 1) for override in overrides)
        options = {key: yaml.safe_load(value) for key, value in pairs}
        DglPartitions(**options).partition().save(Path(out))
    except (ConfigError, DataError, TypeError, yaml.YAMLError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"partitioner=stored partitioner.path={out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
