"""Files of igraph, NetworkX and NetworKit are read as by the library that reads them best, or as what was written.

`tests/support/others_files.py` wrote the files, and what the libraries make of them.
"""

from pathlib import Path
from typing import Any

import pytest
from others_records import PAGE, page, read, records

from gnnexp.errors import DataError

REFUSED = {
    ("networkit", "METIS", "loops"): "are their own neighbours",  # METIS has no loops, and whole weights only
    ("networkit", "METIS", "weights"): "whole numbers",
    ("networkit", "METIS", "missing values"): "whole numbers",
    ("igraph", "Pajek", "defaults"): "attribute weight='nan': is no finite number",  # written as NaN
    ("igraph", "Pajek", "missing values"): "attribute weight='nan': is no finite number",
}


def named(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["library"], record["format"], record["variant"]


@pytest.mark.parametrize("record", records(), ids=lambda one: "-".join(named(one)).replace(" ", "_"))
def test_a_file_is_read_as_by_the_library_that_reads_it_best(record: dict[str, Any], tmp_path: Path) -> None:
    if named(record) in REFUSED:
        with pytest.raises(DataError, match=REFUSED[named(record)]):
            read(record, tmp_path)
        return
    found, best, written = read(record, tmp_path), record["best_reads"], record["written"]
    if record["library"] == "hand":
        assert found == {**found, "arcs": written["arcs"], "ids": written["ids"]}
        return
    for part in ("arcs", "vertices"):
        right = [best[part]] if best[part] == written[part] else [best[part], written[part]]
        assert found[part] in right
    if best["ids"] is not None and found["ids"] is not None:
        assert found["ids"] in (best["ids"], written["ids"])


def test_the_table_of_the_page_is_of_now() -> None:
    """Else: python tests/support/others_records.py."""
    assert "".join(page()) == PAGE.read_text("utf-8")
