"""A resolved configuration as a value that is passed on, written down and compared, but not read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Resolved:
    """A configuration as `config.yaml` has it, or one group of it.

    Attributes:
        mapping: plain dicts, lists and scalars. Only `config/` and `experiment/build.py` look inside.
    """

    mapping: Mapping[str, Any]

    def group(self, name: str) -> Resolved:
        """One of its groups (`hardware.launcher`), empty where it has none."""
        node: Any = self.mapping
        for part in name.split("."):
            node = node.get(part) or {}
        return Resolved(node)

    def text(self, without: Collection[str] = ()) -> str:
        """As canonical JSON, without some of its topmost keys: equal texts mean equal options."""
        return json.dumps({key: value for key, value in self.mapping.items() if key not in without}, sort_keys=True)
