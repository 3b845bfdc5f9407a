"""Which code a run executes: edited code is never "finished before"."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from gnnexp.errors import DataError
from gnnexp.provenance import code as code_module
from gnnexp.provenance.code import (
    RunCode,
    _imported_digest,
    code_key,
    code_of,
    code_of_config,
    modules_of,
    own_files,
    package_digest,
    remember_own,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own on `sys.path`, with a model, what it imports, and what nobody imports."""
    (tmp_path / "mymodel.py").write_text(
        "from gnnexp.models.sage import SAGEOptions\nfrom myparts import rate\nclass Mine(SAGEOptions):\n    rate = 1\n"
    )
    (tmp_path / "myparts.py").write_text("def rate():\n    return 1\n")
    (tmp_path / "unused.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def config(model: str = "mymodel.Mine") -> dict[str, Any]:
    return {
        "model": {"_target_": model},
        "dataset": {"_target_": "gnnexp.datasets.published.digits.Digits"},
        "tracker": {"_target_": "mytracker.Mine"},
        "hardware": {"launcher": {"_target_": "mylauncher.Mine"}},
    }


def test_an_edit_of_the_class_or_of_what_it_imports_is_other_code(folder: Path) -> None:
    before = code_of_config(config())
    assert set(before.own) == {"mymodel", "myparts"}
    (folder / "unused.py").write_text("x = 2\n")
    assert code_of_config(config()) == before
    (folder / "myparts.py").write_text("def rate():\n    return 2\n")
    edited = code_of_config(config())
    assert edited != before and edited.own["mymodel"] == before.own["mymodel"]
    (folder / "mymodel.py").write_text((folder / "mymodel.py").read_text() + "    hidden = 2\n")
    assert code_of_config(config()).own["mymodel"] != before.own["mymodel"]


def test_code_in_another_folder_of_the_path_is_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "myother.py").write_text("rate = 1\n")
    monkeypatch.syspath_prepend(str(other))
    (folder / "myparts.py").write_text("import myother\ndef rate(): ...\n")
    before = code_of_config(config())
    assert set(before.own) == {"mymodel", "myparts", "myother"}
    (other / "myother.py").write_text("rate = 2\n")
    assert code_of_config(config()) != before


def test_a_compiled_module_of_a_package_counts(folder: Path) -> None:
    (folder / "compiled").mkdir()
    (folder / "compiled" / "__init__.py").write_text("")
    (folder / "compiled" / "model.py").write_text("from .fast import rate\nclass Mine: ...\n")
    file = folder / "compiled" / f"fast{EXTENSION_SUFFIXES[0]}"
    file.write_bytes(b"\x7fELF\0one")
    before = code_of_config(config("compiled.model.Mine"))
    assert set(before.own) == {"compiled", "compiled.fast", "compiled.model"}
    file.write_bytes(b"\x7fELF\0other")
    assert code_of_config(config("compiled.model.Mine")) != before


def test_a_package_without_init_and_a_nested_class(folder: Path) -> None:
    (folder / "loose").mkdir()
    (folder / "loose" / "part.py").write_text("class Outer:\n    class Inner: ...\n")
    assert set(code_of_config(config("loose.part.Outer.Inner")).own) == {"loose.part"}


def test_an_installed_package_is_its_version() -> None:
    assert set(code_of(["torch.nn.modules.linear"]).own) == {
        f"torch=={code_module.importlib.metadata.version('torch')}"
    }
    assert code_of(["json", "sys"]).own.keys() <= {"json", "sys"}, "Python itself"


def test_a_package_that_says_where_its_modules_are_is_followed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkouts that share a package (`pkgutil.extend_path`), and a folder that has another name."""
    other = tmp_path_factory.mktemp("other")
    monkeypatch.syspath_prepend(str(other))
    for place in (other, folder):
        (place / "shared").mkdir()
        (place / "shared" / "__init__.py").write_text(
            f"__path__ = __import__('pkgutil').extend_path(__path__, __name__) + [{str(folder / 'more')!r}]\n"
        )
    (folder / "more").mkdir()
    (folder / "more" / "far.py").write_text("import myparts\nrate = 1\n")
    (folder / "shared" / "mine.py").write_text("from shared import near\n")
    (folder / "shared" / "near.py").write_text("rate = 1\n")
    assert set(code_of(["shared.mine"]).own) == {"shared", "shared.mine", "shared.near"}
    before = code_of(["shared.far"]).own
    assert set(before) == {"shared", "shared.far", "myparts"}
    (folder / "more" / "far.py").write_text("import myparts\nrate = 2\n")
    assert code_of(["shared.far"]).own != before
    for name in [name for name in sys.modules if name.partition(".")[0] == "shared"]:
        del sys.modules[name]


def test_trackers_and_launchers_change_no_result(folder: Path) -> None:
    assert all("tracker" not in name and "launcher" not in name for name in modules_of(config()))
    assert own_files(config()) == [folder / "mymodel.py", folder / "myparts.py"]


def test_gnnexps_own_code_is_one_digest_of_its_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("x = 1\n")
    monkeypatch.setattr(code_module, "_FOLDER", tmp_path)
    package_digest.cache_clear()
    first = package_digest()
    (tmp_path / "part.py").write_text("x = 2\n")
    assert package_digest() == first, "this process has loaded the code of before"
    package_digest.cache_clear()
    assert package_digest() != first
    package_digest.cache_clear()
    assert code_of_config(config("gnnexp.models.gat.GATOptions")) == RunCode({})


def test_an_artifact_of_edited_code_is_another(folder: Path) -> None:
    (folder / "mydata.py").write_text(
        "from gnnexp.datasets.published.digits import Digits\nclass Mine(Digits):\n    y = 1\n"
    )
    from mydata import Mine  # type: ignore[import-not-found]

    before, key = code_key(Mine), Mine().key()
    (folder / "mydata.py").write_text((folder / "mydata.py").read_text() + "    x = 1\n")
    with pytest.raises(DataError, match="must be the code that this command has imported"):
        Mine().key()
    del sys.modules["mydata"]
    _imported_digest.cache_clear()
    from mydata import Mine as Edited

    assert code_key(Edited) != before and Edited().key() != key
    del sys.modules["mydata"]


def test_an_edit_between_the_beginning_of_a_command_and_its_first_artifact_is_seen(folder: Path) -> None:
    """The process may import a module long before it makes something with it: a graph is prepared meanwhile."""
    remember_own(config())
    import mymodel  # type: ignore[import-not-found]

    (folder / "myparts.py").write_text("def rate():\n    return 3\n")
    with pytest.raises(DataError, match="must be the code that this command has imported"):
        code_key(mymodel.Mine)
    for name in ("mymodel", "myparts"):
        del sys.modules[name]
