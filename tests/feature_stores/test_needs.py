"""The memory that each feature store says it needs, by formula: 101 rows of 12 bytes, in 4 parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gnnexp.feature_stores.base import FeatureStoreOptions, Share
from gnnexp.feature_stores.embedding import EmbeddingOptions
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.feature_stores.partitioned import PartitionedOptions
from gnnexp.feature_stores.sliced import SlicedOptions

ROWS, ROW_BYTES, PARTS, GROUPS = 101, 12, 4, 2
WHOLE = ROWS * ROW_BYTES
# Bytes of a rank on the host, of a machine on the host, and of a rank on its device.
NEEDS: dict[str, tuple[FeatureStoreOptions, tuple[int, int, int]]] = {
    "partitioned": (PartitionedOptions(), (WHOLE // PARTS, 0, 0)),
    "sliced": (SlicedOptions(), (WHOLE // PARTS, 0, 0)),
    "embedding": (EmbeddingOptions(dim=3), (6 * WHOLE // PARTS, 0, 0)),
    "mapped": (LocalOptions(memory="mapped"), (0, 0, 0)),
    "ram": (LocalOptions(memory="ram"), (WHOLE, 0, 0)),
    "on the GPU": (LocalOptions(memory="mapped", tier="device"), (0, 0, WHOLE)),
    "pinned": (LocalOptions(memory="mapped", tier="uva"), (0, GROUPS * WHOLE, 0)),
    "pages of the file": (LocalOptions(memory="mapped", tier="mapped"), (0, WHOLE, 0)),
}


@pytest.mark.parametrize("name", NEEDS)
def test_needs_are_the_formula(name: str) -> None:
    options, wanted = NEEDS[name]
    facts: Any = SimpleNamespace(num_nodes=ROWS)
    needs = options.needs(facts, ROW_BYTES, Share(ROWS, PARTS, GROUPS))
    places = (("host", True), ("host", False), ("device", True))
    sums = tuple(sum(n.num_bytes for n in needs if (n.place, n.per_rank) == place) for place in places)
    assert sums == wanted and sum(n.num_bytes for n in needs) == sum(wanted)
