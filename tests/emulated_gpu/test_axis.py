"""Each case runs in one setting of the emulated device, and each value of a parameter in all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any, cast

import pytest
from emulated_axis import MOST, SETTINGS, chosen


@dataclass(frozen=True)
class CallSpec:
    params: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Item:
    nodeid: str
    callspec: CallSpec = field(default_factory=lambda: CallSpec({}))
    marks: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> bool:
        return name in self.marks


def parts(items: list[Item]) -> dict[tuple[str, str], list[Item]]:
    return {setting: cast("list[Item]", chosen(cast("list[pytest.Item]", items), setting)) for setting in SETTINGS}


def test_every_case_has_one_setting_and_every_value_all() -> None:
    axes = {"model": ["gcn", "sage", "gat"], "size": [1, 2, 3], "sparse": [False, True]}
    items = [
        Item(f"t.py::test_a[{case}]", CallSpec(dict(zip(axes, case, strict=True)))) for case in product(*axes.values())
    ]
    found = parts(items)
    assert sorted(item.nodeid for part in found.values() for item in part) == sorted(item.nodeid for item in items)
    for part in found.values():
        for axis, values in axes.items():
            assert {item.callspec.params[axis] for item in part} == set(values)


def test_functions_without_parameters_are_shared_out_and_the_mark_decides() -> None:
    items = [Item(f"t.py::test_{number}") for number in range(60)]
    found = parts(items)
    assert sum(map(len, found.values())) == 60 and min(map(len, found.values())) > 10
    marked = [Item("t.py::test_b[1]", marks=("gpus",)), Item("t.py::test_b[2]", marks=("gpus",))]
    assert parts(marked)[MOST] == marked
