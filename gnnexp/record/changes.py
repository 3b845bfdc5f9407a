"""Whether the data of a recorded run are still the data that its dataset reads today."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnexp.datasets.base import Dataset
from gnnexp.errors import GnnexpError
from gnnexp.provenance.code import package_digest
from gnnexp.provenance.recorded import is_of_other_version
from gnnexp.record.attempts import codes_of, read_attempts

_DIGITS = 12


def changed_data(run_dir: Path, provenance: Mapping[str, Any], dataset: Dataset) -> str:
    """How the data have changed since a run; empty if they have not, or if that cannot be found.

    It cannot be found if files are missing, or if the keys of the run have another form. All bytes are hashed.

    Args:
        run_dir: directory of the run.
        provenance: what its record says.
        dataset: the dataset of its configuration.
    """
    recorded = str(provenance.get("dataset_key") or "")
    if not recorded or is_of_other_version(provenance):
        return ""
    try:
        today = dataset.key()
        executed = [code.get("gnnexp") for code in codes_of(read_attempts(run_dir))]
    except (GnnexpError, OSError, ImportError):  # another step reports it, if it needs the files
        return ""
    if today == recorded:
        return ""
    # Another gnnexp may read the same bytes otherwise, and then gives another key.
    code = "" if executed[-1:] == [package_digest()] else " or the code that reads them"
    keys = f"key {recorded[:_DIGITS]}, today {today[:_DIGITS]}"
    return f"the data of {dataset.name}{code} have changed since the run ({keys})"
