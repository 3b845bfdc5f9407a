"""YAML of somebody else: limits before a loader makes objects, and words for all of its errors."""

import pytest

from gnnexp.files import foreign_yaml
from gnnexp.files.foreign_yaml import excess_of, parse_yaml


def test_plain_data_is_read() -> None:
    assert parse_yaml(b"a: &a {b: [1, x]}\nc: *a\n") == {"a": {"b": [1, "x"]}, "c": {"b": [1, "x"]}}


@pytest.mark.parametrize(
    "text", ["a: &a [x, x, x]\nb: [*a, *a, *a, *a]\n", "a: &a {p: x, q: x}\nb: &b {<<: [*a, *a]}\nc: {<<: [*b, *b]}\n"]
)
def test_aliases_count_as_their_content(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_yaml(text.encode())
    monkeypatch.setattr(foreign_yaml, "MAX_NODES", 20)
    with pytest.raises(ValueError, match="more than 20 nodes"):
        parse_yaml(text.encode())


def test_an_alias_of_a_long_text_counts_as_much_as_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"a: &a {'x' * 5000}\nb: [{', '.join(['*a'] * 4)}]\n".encode()
    monkeypatch.setattr(foreign_yaml, "MAX_NODES", 30)
    assert not excess_of(text)  # 5 texts of 5 nodes, and 4 others
    monkeypatch.setattr(foreign_yaml, "MAX_NODES", 28)
    assert excess_of(text) == "more than 28 nodes"


def test_depth_and_bytes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_yaml, "MAX_DEPTH", 3)
    assert excess_of(b"[[[[]]]]") == "more than 3 levels" and not excess_of(b"[[[]]]")
    monkeypatch.setattr(foreign_yaml, "MAX_BYTES", 8)
    assert excess_of(b"[1, 2, 3]") == "more than 8 bytes" and not excess_of(b"[1, 2]")


@pytest.mark.parametrize(
    "text",
    [
        "!!bool maybe",
        '!!int ""',
        "!!timestamp noon",
        "2024-13-45",
        "!!python/name:os.system",
        "[1",
        "{[1]: 2}",
        "a\x00b",
        "\xff",
    ],
)
def test_every_error_of_the_loader_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_yaml(text.encode("latin-1"))
