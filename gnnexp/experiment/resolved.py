"""A resolved configuration as a value that is passed on, written and compared, but not read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class ResolvedConfig:
    """A configuration as in `config.yaml`, or one of its groups.

    Attributes:
        mapping: plain dicts, lists and scalars. Only `config/` and `experiment/build.py` look inside.
    """

    mapping: Mapping[str, Any]

    def group(self, name: str) -> ResolvedConfig:
        """The group `name` (such as `hardware.launcher`); empty if there is none."""
        node: Any = self.mapping
        for part in name.split("."):
            node = node.get(part) or {}
        return ResolvedConfig(node)

    def text(self, without: Collection[str] = ()) -> str:
        """Canonical JSON, without the top-level keys of `without`. Equal texts mean equal options."""
        return json.dumps({key: value for key, value in self.mapping.items() if key not in without}, sort_keys=True)
