"""What a rank is made of, and what it says of itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from gnnexp.comm.environment import Environment
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.training.assemble import Artifacts, assemble


@pytest.mark.parametrize(("throttle", "said"), [(None, None), (1.875e9, "emulated: 1.875e+09 bytes/s")])
def test_an_emulated_link_is_named_in_the_record(throttle: float | None, said: str | None) -> None:
    config: dict[str, Any] = small_config(MODELS["gcn"], hardware={"throttle": throttle})
    with tempfile.TemporaryDirectory() as folder:
        job, _ = assemble(config, Artifacts(nasty_graph()), Path(folder), Environment())
    assert job.facts["throttle"] == said
