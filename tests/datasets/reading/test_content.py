"""JSON that may be of a format is parsed only if it has the format's words, and if it fits in memory."""

from pathlib import Path

import pytest

from gnnexp.datasets.reading import content
from gnnexp.datasets.reading.content import json_that_has
from gnnexp.errors import DataError


def test_what_has_the_words_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"nodes": [], "edges": []}')
    assert json_that_has(tmp_path / "a.json", [b'"nodes"', b'"edges"']) == {"nodes": [], "edges": []}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"nodes": []}', '{"nodes": [], "edges": [', "[" * 9999 + '"nodes" "edges"']
)
def test_what_lacks_a_word_or_is_no_json_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert json_that_has(tmp_path / "a.json", [b'"nodes"', b'"edges"']) is None


def test_memory_is_asked_for_only_for_what_has_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text('{"nodes": []}')
    monkeypatch.setattr(content, "JSON_FACTOR", 1 << 60)
    assert json_that_has(tmp_path / "a.json", [b'"edges"']) is None
    with pytest.raises(DataError, match=r"a\.json.*GiB"):
        json_that_has(tmp_path / "a.json", [b'"nodes"'])
