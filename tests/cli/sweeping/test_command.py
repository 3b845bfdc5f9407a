"""What a sweep says before it starts."""

from __future__ import annotations

import pytest

from gnnexp.cli.sweeping.command import sizes_in_words


@pytest.mark.parametrize(("total", "unknown", "words"), [
    (0, 0, "about 0 B on disk"), (2048, 0, "about 2.0 KB on disk"), (0, 12, "12 runs whose data is not prepared"),
    (2048, 1, "about 2.0 KB on disk and 1 run whose data is not prepared")])
def test_sizes_that_are_not_known_are_not_zero(total: int, unknown: int, words: str) -> None:
    assert sizes_in_words(total, unknown) == words
