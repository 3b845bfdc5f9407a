"""The setting of the emulated device as one more axis of each test's parameters, for `make test-slow`.

Three settings differ in what ranks share: 4 GPUs (no rank shares its GPU: NCCL), 1 GPU (all ranks share it: gloo), and
2 GPUs with backward passes on the loop's thread. Each case runs in one of them. Every value of every parameter of a
test meets every setting, as far as the value has enough cases. `make nightly` runs all cases in all settings.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from zlib import crc32

import pytest

# GPUs and threads, by the variables of the emulated device.
SETTINGS = (("4", "on"), ("1", "on"), ("2", "off"))
MOST = SETTINGS[0]
WANTED = "GNNEXP_EMULATED_AXIS"


def setting_of_this_process() -> tuple[str, str]:
    """As SETTINGS has it."""
    return os.environ["GNNEXP_EMULATED_GPUS"], os.environ.get("GNNEXP_EMULATED_THREADS", "on")


def chosen(items: Sequence[pytest.Item], setting: tuple[str, str]) -> list[pytest.Item]:
    """The tests of one setting. Those with the mark `gpus` need a GPU for each rank."""
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    kept = {
        item
        for name, cases in functions.items()
        for item, place in zip(cases, _places(name, cases), strict=True)
        if place == setting
    }
    return [item for item in items if item in kept]


def _places(name: str, cases: Sequence[pytest.Item]) -> list[tuple[str, str]]:
    """A setting for each case: the one that most of the case's values have not met."""
    met: set[tuple[str, str, tuple[str, str]]] = set()
    used = dict.fromkeys(SETTINGS, 0)
    first = crc32(name.encode())  # where nothing decides, functions begin with different settings
    places = []
    for case in cases:
        parameters = case.callspec.params if hasattr(case, "callspec") else {}
        values = [(axis, repr(value)) for axis, value in parameters.items()]
        order = sorted(SETTINGS, key=lambda one: (used[one], (SETTINGS.index(one) + first) % len(SETTINGS)))
        place = (
            MOST
            if case.get_closest_marker("gpus")
            else max(order, key=lambda one: sum((*value, one) not in met for value in values))
        )
        met |= {(*value, place) for value in values}
        used[place] += 1
        places.append(place)
    return places
