"""gnnexp from a wheel, where torch and all the rest lie in the same folder: the same code has the same key there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
from wheels import build_both, files_of, unpack

import gnnexp
from gnnexp.config.compose import compose
from gnnexp.experiment.run_key import run_key
from gnnexp.provenance.code import _is_installed, code_of, code_of_config, package_digest

REPOSITORY = Path(gnnexp.__file__).parents[1]
OVERRIDES = ("dataset=digits", "system=gsplit")
ASK = f"""
import json
import gnnexp
from gnnexp.config.compose import compose
from gnnexp.provenance.code import code_of_config, package_digest
from gnnexp.experiment.run_key import run_key

config = compose({list(OVERRIDES)!r}).config
code = code_of_config(config)
print(json.dumps([gnnexp.__file__, package_digest(), run_key(config, "some data", code)]))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """That of the checkout, and that of the source distribution."""
    return build_both(REPOSITORY, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory: pytest.TempPathFactory, wheels: tuple[Path, Path]) -> Path:
    """What `pip install` of the wheel makes: gnnexp and everything that it imports in one folder."""
    folder = tmp_path_factory.mktemp("environment") / "site-packages"
    unpack(wheels[0], folder)
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "gnnexp" not in entry.name and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.interpreter
@pytest.mark.slow
def test_a_wheel_carries_every_file_of_data(wheels: tuple[Path, Path]) -> None:
    wheel, from_sdist = wheels
    carried = files_of(wheel)
    assert files_of(from_sdist) == carried
    package = REPOSITORY / "gnnexp"
    linked = (package / "conf", package / "sweeps")
    own = [
        file
        for file in package.rglob("*")
        if file.is_file()
        and "__pycache__" not in file.parts
        and not any(file.is_relative_to(folder) for folder in linked)
    ]
    files = [
        *own,
        *(REPOSITORY / "conf").rglob("*.yaml"),
        *(file for file in (REPOSITORY / "sweeps").rglob("*") if file.is_file()),
    ]
    assert set(carried) == {f"gnnexp/{str(file.relative_to(REPOSITORY)).removeprefix('gnnexp/')}" for file in files}
    assert {Path(name).suffix for name in carried} >= {".py", ".yaml", ".csv", ".css", ".js", ".typed"}


@pytest.mark.interpreter
@pytest.mark.slow
def test_a_wheel_gives_the_keys_of_the_checkout(site_packages: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(site_packages)}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    place, digest, key = json.loads(done.stdout)
    config = compose(OVERRIDES).config
    here = code_of_config(config)
    assert Path(place).parent == site_packages / "gnnexp"
    assert digest == package_digest()
    assert key == run_key(config, "some data", here)


@pytest.mark.parametrize(
    ("place", "beside", "names", "installed"),
    [
        (
            "lib/python3.11/site-packages",
            "a-1.0.dist-info",
            "theirs package",
            True,
        ),  # the user's own, a cluster's module
        ("dist-packages", "a-1.0.egg-info", "theirs package", True),  # Debian
        ("target", "a-1.0.dist-info", "theirs package", True),  # pip install --target
        ("target", "a-1.0.dist-info", "another", False),  # a user's own module, where packages were installed to
        ("lib/python3.11/site-packages", "a-1.0.dist-info", "another", False),  # copied there by hand
        ("project", "a.egg-info", "theirs package", False),  # what `pip install --editable` leaves in a project
        ("project", "", "", False),
    ],
)
def test_what_a_package_manager_put_there_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, beside: str, names: str, installed: bool
) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    if beside:
        (folder / beside).mkdir()
        (folder / beside / "top_level.txt").write_text("\n".join(names.split()))
        (folder / beside / ("PKG-INFO" if "egg" in beside else "METADATA")).write_text("Name: a\nVersion: 1.0\n")
    (folder / "theirs.py").write_text("")
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    module = spec_from_file_location("theirs", folder / "theirs.py")
    package = spec_from_file_location(
        "package", folder / "package" / "__init__.py", submodule_search_locations=[str(folder / "package")]
    )
    assert module is not None and package is not None
    found = [_is_installed(module, folder / "theirs.py"), _is_installed(package, folder / "package")]
    assert found == [installed, installed]


def _install(folder: Path, package: str, source: str) -> None:
    """What pip leaves of a package of one module."""
    (folder / package).mkdir(parents=True, exist_ok=True)
    (folder / package / "part.py").write_text(source)
    described = folder / f"{package}-1.0.dist-info"
    described.mkdir(exist_ok=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (described / "RECORD").write_text(f"{package}/part.py,,\n{package}-1.0.dist-info/METADATA,,\n")


def test_a_package_that_was_edited_and_installed_again_under_its_version_is_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install .` without a new version: the result of the earlier code is not its result."""
    folder = tmp_path / "site-packages"
    _install(folder, "labplugin", "rate = 1\n")
    monkeypatch.syspath_prepend(str(folder))
    before = code_of(["labplugin.part"]).own
    assert set(before) == {"labplugin==1.0"}
    _install(folder, "labplugin", "rate = 2\n")
    assert code_of(["labplugin.part"]).own != before


def test_a_folder_of_the_users_own_in_a_namespace_that_others_install_into_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lab's packages share a name without `__init__.py`: one of them is installed, another one is being written."""
    _install(tmp_path / "site-packages", "labspace", "")
    own = tmp_path / "project" / "labspace"
    own.mkdir(parents=True)
    (own / "mine.py").write_text("from labspace import helper\n")
    (own / "helper.py").write_text("rate = 1\n")
    for folder in ("site-packages", "project"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    before = code_of(["labspace.mine"]).own
    assert set(before) == {"labspace==1.0", "labspace.mine", "labspace.helper"}
    (own / "helper.py").write_text("rate = 2\n")
    assert code_of(["labspace.mine"]).own != before


def test_code_in_an_archive_is_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "lab.zip"
    found = []
    for rate in (1, 2):
        with zipfile.ZipFile(archive, "w") as content:
            content.writestr("labzip/__init__.py", "")
            content.writestr("labzip/part.py", f"rate = {rate}")
        monkeypatch.syspath_prepend(str(archive))
        found.append(code_of(["labzip.part"]).own)
    assert set(found[0]) == {"labzip", "labzip.part"} and found[0] != found[1]
