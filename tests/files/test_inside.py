"""Names in files of others stay in their folder."""

from pathlib import Path

import pytest

from gnnexp.errors import DataError
from gnnexp.files.inside import place_inside


@pytest.mark.parametrize("name", ["a.npy", "data/a.npy", "data/../a.npy", "./a.npy", "..a.npy"])
def test_names_in_the_folder(name: str, tmp_path: Path) -> None:
    assert place_inside(tmp_path / "metadata.yaml", name, "") == tmp_path / name


def test_a_full_name_in_the_folder(tmp_path: Path) -> None:
    assert place_inside(tmp_path / "metadata.yaml", str(tmp_path / "a.npy"), "") == tmp_path / "a.npy"


@pytest.mark.parametrize(
    "name", ["../a.npy", "/etc/passwd", "data/../../a.npy", "~/../../../etc/passwd", "a\0", 3, None]
)
def test_names_that_lead_elsewhere(name: object, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metadata\.yaml"):
        place_inside(tmp_path / "metadata.yaml", name, "")


def test_a_folder_whose_name_begins_alike_is_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be a place in"):
        place_inside(tmp_path / "graph" / "metadata.yaml", "../graph2/a.npy", "")


def test_a_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_inside(Path("metadata.yaml"), "a.npy", "") == Path("a.npy")
    with pytest.raises(DataError, match="must be a place in"):
        place_inside(Path("metadata.yaml"), "../a.npy", "")
