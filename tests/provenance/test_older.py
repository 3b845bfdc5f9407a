"""Classes that have moved: each earlier name leads to a class of today, which has the same name in keys."""

from __future__ import annotations

import pytest

from gnnexp.components.locate import locate
from gnnexp.provenance.names import name_of
from gnnexp.provenance.older import MOVED


@pytest.mark.parametrize("earlier", MOVED)
def test_an_earlier_name_leads_to_a_class_of_today(earlier: str) -> None:
    component = locate(earlier)
    assert f"{component.__module__}.{component.__qualname__}" == MOVED[earlier]
    assert name_of(earlier) == name_of(MOVED[earlier])
