"""A cache that two users share: what one left when they were killed is in nobody's way, and leads nobody elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_user import NOBODY, SOMEBODY, acting_as, needs_root, shared_folder

from gnnexp.datasets.published.digits import Digits
from gnnexp.errors import DataError
from gnnexp.files.disk import try_lock, write_bytes
from gnnexp.graph.storage.arrays import META
from gnnexp.preparation.artifacts import graph_folder, prepare_graph

pytestmark = needs_root
GROUP = 54000


@pytest.fixture(scope="module", autouse=True)
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Other users may not read this checkout: what a preparation imports and compiles is loaded before."""
    prepare_graph(Digits(), tmp_path_factory.mktemp("cache"))


@pytest.fixture(params=[0o2775, 0o3777], ids=["a group's", "everyone's, as /tmp"])
def cache(request: pytest.FixtureRequest) -> Iterator[Path]:
    with shared_folder(request.param) as folder:
        os.chown(folder, 0, GROUP)
        yield folder


def prepare(cache: Path, user: int, umask: int = 0o002) -> list[str]:
    """Names of what lies in the cache after this user has prepared a graph there."""
    with acting_as(user, group=GROUP, umask=umask):
        return [path.name for path in prepare_graph(Digits(), cache)[1].parent.iterdir()]


class Dying(Digits):
    """Is killed while it writes files; some of its folders are private."""

    def generate(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "a.npy").write_text("half")
        (folder / "private").mkdir(mode=0o700)
        (folder / "private" / "rows").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def killed(cache: Path, umask: int) -> None:
    """A preparation of the first user that is killed half-way. Its graph has the name of the others'."""
    key = Digits().key()
    with acting_as(NOBODY, group=GROUP, umask=umask):
        if (pid := os.fork()) == 0:
            prepare_graph(Dying(), cache, key)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert len(list((cache / "graphs").iterdir())) == 2, "a lock, and a staging folder"
    (cache / "graphs").chmod((cache.stat().st_mode | 0o775) & 0o7777)


@pytest.mark.parametrize("umask", [0o002, 0o022])
def test_a_killed_preparation_blocks_no_other_user(cache: Path, umask: int) -> None:
    killed(cache, umask)
    name = graph_folder(Digits(), cache).name
    assert name in prepare(cache, SOMEBODY)
    if umask == 0o002 and not cache.stat().st_mode & 0o1000:
        assert not list((cache / "graphs").glob(".*/a.npy")), "a group removes what one of it left"
    assert name in prepare(cache, NOBODY)


def test_a_lock_that_others_may_not_read_is_named_with_its_owner(cache: Path) -> None:
    """Whether its process lives cannot be seen then, and its graph could not be read either."""
    killed(cache, 0o077)
    with pytest.raises(DataError, match=r"(?s)belongs to nobody.*umask 002"):
        prepare(cache, SOMEBODY)


def test_a_graph_that_others_may_not_read_is_named_with_its_owner(cache: Path) -> None:
    prepare(cache, NOBODY, umask=0o077)
    for folder in (cache, cache / "graphs"):
        folder.chmod(0o2775)
    with pytest.raises(DataError, match=r"(?s)belongs to nobody.*umask 002"):
        prepare(cache, SOMEBODY)


def test_a_damaged_graph_of_another_user_is_named(cache: Path) -> None:
    prepare(cache, NOBODY, umask=0o022)
    (cache / "graphs").chmod(cache.stat().st_mode & 0o7777)
    (graph_folder(Digits(), cache) / META).write_text("{}")
    with pytest.raises(DataError, match="it is damaged and belongs to nobody"):
        prepare(cache, SOMEBODY)
    prepare(cache, NOBODY)
    prepare(cache, SOMEBODY)


@pytest.mark.parametrize(
    "write",
    [lambda path: write_bytes(path, b"new"), lambda path: try_lock(path.with_name(f".{path.name}.{os.getpid()}.tmp"))],
)
def test_a_link_in_a_shared_folder_leads_to_no_other_file(tmp_path: Path, write: object) -> None:
    """Another user, who knows the names of temporary files and locks, puts links there."""
    (tmp_path / "mine").write_text("old")
    (tmp_path / f".out.{os.getpid()}.tmp").symlink_to(tmp_path / "mine")
    try:
        write(tmp_path / "out")  # type: ignore[operator]
    except OSError as error:
        assert "symbolic" in str(error)
    assert (tmp_path / "mine").read_text() == "old"
