"""Ranks find each other through a file of the run or a store with proofs; who does not know the secret is refused."""

from __future__ import annotations

import hmac
import multiprocessing
import os
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from other_user import NOBODY, acting_as, needs_root, shared_folder
from torch._C._distributed_c10d import FileStore, HashStore
from without_rights import show

from gnnexp.comm.communicator import Communicator, connect
from gnnexp.comm.environment import Environment
from gnnexp.comm.meeting import (
    ForeignPeerError,
    LostStoreError,
    NoAnswerError,
    ProvenStore,
    answers_in_time,
    prove,
    store_of,
)
from gnnexp.errors import RunError
from gnnexp.files.disk import DiskError, in_words
from gnnexp.files.private import PRIVATE, make_private, remove_private, secret_of
from gnnexp.launchers.rendezvous_port import rendezvous_port
from gnnexp.measure.phases import PhaseTimer
from gnnexp.testing.ranks import RankPools

HOST, PATIENCE = torch.device("cpu"), timedelta(seconds=30)
SECRET = bytes(range(16))


# --- the private folder -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_enters_it(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = make_private(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]


def test_each_attempt_has_another_secret_of_128_bits(tmp_path: Path) -> None:
    assert secret_of(tmp_path) is None
    found = []
    for _ in range(2):
        (make_private(tmp_path) / "of an earlier attempt").write_text("")
        found.append(secret_of(tmp_path))
    assert all(one is not None and len(one) == 16 for one in found) and found[0] != found[1]
    assert not (make_private(tmp_path) / "of an earlier attempt").exists()
    remove_private(tmp_path)
    assert not (tmp_path / PRIVATE).exists() and secret_of(tmp_path) is None


@pytest.mark.parametrize(
    "place", [lambda private, other: private.symlink_to(other), lambda private, _: private.write_text("")]
)
def test_what_is_in_its_place_is_removed_and_a_link_not_followed(tmp_path: Path, place: Callable[..., object]) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("kept")
    place(tmp_path / PRIVATE, tmp_path / "other")
    assert make_private(tmp_path).is_dir() and not (tmp_path / PRIVATE).is_symlink()
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["file"]


@needs_root
def test_what_another_user_put_in_its_place_is_refused_in_words() -> None:
    with shared_folder(0o1777) as run_dir:
        (run_dir / PRIVATE).mkdir()
        with acting_as(NOBODY), pytest.raises(DiskError, match="you have no right"), in_words():
            make_private(run_dir)


@needs_root
def test_another_user_sees_nothing_of_it() -> None:
    with shared_folder(0o755) as run_dir:
        folder = make_private(run_dir)
        with acting_as(NOBODY):
            assert secret_of(run_dir) is None
            for look in (
                lambda: list(folder.iterdir()),
                (folder / "secret").read_text,
                lambda: (folder / "store").write_text("x"),
                lambda: folder.rename(run_dir / "mine"),
            ):
                with pytest.raises(PermissionError):
                    look()


def test_without_its_secret_no_rank_starts(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="gnnexp resume"):
        store_of(Environment(0, 2, 0, 2), PATIENCE, tmp_path)


@pytest.mark.parametrize("ask", [lambda store: store.set("a", "b"), lambda store: store.get("a")])
def test_a_store_that_goes_away_is_named(tmp_path: Path, ask: Callable[[FileStore], object]) -> None:
    """Its folder is removed while ranks meet."""
    store = FileStore(str(make_private(tmp_path) / "store"), 2)
    store.set_timeout(timedelta(milliseconds=50))
    remove_private(tmp_path)
    with (
        pytest.raises(LostStoreError, match=r"private/store of the run directory.*gnnexp resume"),
        answers_in_time(1.0),
    ):
        ask(store)


def test_a_late_rank_is_no_lost_store() -> None:
    store = HashStore()
    store.set_timeout(timedelta(milliseconds=20))
    with pytest.raises(NoAnswerError, match="no answer of another rank within 7 s"), answers_in_time(7.0):
        store.get("a")


# --- entries ----------------------------------------------------------------------------------------------------------
def test_an_entry_comes_back() -> None:
    inner = HashStore()
    store, peer = ProvenStore(inner, SECRET), ProvenStore(inner, SECRET)
    store.set("0//cpu//0/1", b"address")
    store.set("text", "value")
    assert (peer.get("0//cpu//0/1"), peer.get("text")) == (b"address", b"value")
    assert peer.check(["text"]) and not peer.check(["other"])
    assert (store.add("n", 2), peer.add("n", 1)) == (2, 3)
    peer.wait(["text"])
    with pytest.raises(dist.DistStoreError):
        peer.wait(["other"], timedelta(milliseconds=20))


@pytest.mark.parametrize(
    "forge",
    [
        lambda store: store.set("rank/1", "an address without a proof"),
        lambda store: store.set("rank/1", ""),
        lambda store: ProvenStore(store, bytes(16)).set("rank/1", b"of another secret"),
        lambda store: store.set("rank/1", store.get("rank/0")),
        lambda store: store.set("rank/1", store.get("rank/1")[:-1]),
        lambda store: store.set("rank/1", hmac.digest(SECRET, b"rank/1address", "sha256") + b"address"),
    ],
)
def test_an_entry_of_a_stranger_is_refused(forge: Callable[[Any], None]) -> None:
    """Also one of another rank, and one that was cut."""
    inner = HashStore()
    for rank in range(2):
        ProvenStore(inner, SECRET).set(f"rank/{rank}", f"address {rank}".encode())
    forge(inner)
    with pytest.raises(ForeignPeerError, match="rank/1"):
        ProvenStore(inner, SECRET).get("rank/1")


# --- ranks ------------------------------------------------------------------------------------------------------------
def _rank(rank: int, ranks: int, port: int, run_dir: Path, secret: bytes | None, answers: Any) -> None:
    """Meets the others, makes a group, adds up. `secret`: instead of that of the run."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    if secret is not None:
        import gnnexp.comm.communicator as own
        import gnnexp.comm.meeting as met

        own.secret_of = met.secret_of = lambda _: secret
    environment = Environment(
        rank, ranks, rank if run_dir.name == "here" else 0, ranks if run_dir.name == "here" else 1
    )
    try:
        meeting = connect(environment, HOST, 20.0, run_dir)
        comm = Communicator(environment, PhaseTimer(), HOST, timeout_s=20.0, meeting=meeting)
        total = torch.tensor([rank + 1.0])
        comm.clone_for_thread().all_reduce(total, "gradients")
        if run_dir.parent.name == "without proofs":
            hmac.digest = None  # type: ignore[assignment]  # from now on, a proof would be an error
        answers.put((rank, total.item(), comm.gather_objects({"rank": rank})))
        comm.close()
    except Exception as error:
        answers.put((rank, type(error).__name__, str(error)))


def met(run_dir: Path, ranks: int, secrets: dict[int, bytes] | None = None) -> list[Any]:
    forks, port = multiprocessing.get_context("forkserver"), rendezvous_port(os.getpid(), "127.0.0.1")
    answers = forks.Queue()
    processes = [
        forks.Process(target=_rank, args=(rank, ranks, port, run_dir, (secrets or {}).get(rank), answers))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    found = sorted(answers.get(timeout=90) for _ in processes)
    for process in processes:
        process.join(30)
    return found


@pytest.fixture
def started(ranks: RankPools) -> None:
    """The process that forks ranks has imported what they need."""


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("place", ["here", "between machines"])
def test_ranks_meet(tmp_path: Path, count: int, place: str) -> None:
    run_dir = tmp_path / place
    run_dir.mkdir()
    make_private(run_dir)
    found = met(run_dir, count)
    assert found == [(rank, sum(range(count + 1)), [{"rank": one} for one in range(count)]) for rank in range(count)]


@pytest.mark.usefixtures("started")
def test_ranks_meet_where_the_run_directory_keeps_no_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = tmp_path / "here"
    run_dir.mkdir()
    with monkeypatch.context() as patch:
        show(patch, run_dir)
        folder = make_private(run_dir, here=True)
    try:
        assert [answer[1] for answer in met(run_dir, 2)] == [3.0, 3.0]
        assert list(run_dir.iterdir()) == []
        assert secret_of(run_dir) == bytes.fromhex((folder / "secret").read_text())
    finally:
        remove_private(run_dir)


@pytest.mark.parametrize(
    ("environment", "address", "proven"),
    [
        (Environment(1, 2, 1, 2), "127.0.0.1", False),
        (Environment(1, 2, 0, 1), "127.0.0.1", True),
        (Environment(1, 2, 1, 2), "10.0.0.7", True),
    ],
)
def test_ranks_of_one_machine_have_a_file_and_others_entries_with_proofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment, address: str, proven: bool
) -> None:
    folder = make_private(tmp_path)
    monkeypatch.setenv("MASTER_ADDR", address)
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr("gnnexp.comm.meeting._server", lambda *_: HashStore())
    store = store_of(environment, PATIENCE, tmp_path)
    assert isinstance(store, ProvenStore) if proven else store.path == str(folder / "store")


@pytest.mark.parametrize("place", ["here", "between machines"])
@pytest.mark.usefixtures("started")
def test_a_rank_without_the_secret_is_refused_by_the_others(tmp_path: Path, place: str) -> None:
    """On one machine it would have to enter the private folder first. This one may, but has another secret."""
    run_dir = tmp_path / place
    run_dir.mkdir()
    make_private(run_dir)
    found = met(run_dir, 2, {1: bytes(16)})
    assert found[0][1] == "ForeignPeerError", found
    assert "secret" in found[0][2]


# --- what gloo, NCCL and torchrun do not give -------------------------------------------------------------------------
@pytest.mark.usefixtures("started")
def test_messages_carry_no_proof(tmp_path: Path) -> None:
    """Proofs are for connecting: without HMAC, ranks that have met go on."""
    run_dir = tmp_path / "without proofs" / "here"
    run_dir.mkdir(parents=True)
    make_private(run_dir)
    assert [answer[2] for answer in met(run_dir, 2)] == [[{"rank": 0}, {"rank": 1}]] * 2


@needs_root
@pytest.mark.usefixtures("started")
def test_messages_are_not_encrypted(tmp_path: Path) -> None:
    """Who may read the packets of this machine, which is root alone, finds what ranks gather."""
    run_dir = tmp_path / "here"
    run_dir.mkdir()
    make_private(run_dir)
    packets: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as seen:
        seen.bind(("lo", 0))
        seen.settimeout(0.2)
        ended = threading.Event()

        def listen() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    packets.append(seen.recv(1 << 16))

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            met(run_dir, 2)
        finally:
            ended.set()
            listener.join()
    assert any(b'"rank"' in packet for packet in packets)


def test_the_store_of_torchrun_is_open_and_gnnexps_entries_have_proofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_private(tmp_path)
    torchruns = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stranger = dist.TCPStore("127.0.0.1", torchruns.port, is_master=False)
    torchruns.set("of torchrun", "its own")
    assert torchruns.get("of torchrun") == b"its own"  # `set` returns before the server has the value
    stranger.set("of torchrun", "somebody else's")
    assert stranger.get("of torchrun") == torchruns.get("of torchrun") == b"somebody else's"
    for name, value in {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(torchruns.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }.items():
        monkeypatch.setenv(name, value)
    store = store_of(Environment(1, 2, 0, 1), PATIENCE, tmp_path)
    store.set("rank/1", "address")
    assert stranger.get("gnnexp/0/rank/1").endswith(b"address"), "it can be read"
    assert store.get("rank/1") == b"address"
    stranger.set("gnnexp/0/rank/1", "another address")
    assert stranger.get("gnnexp/0/rank/1") == b"another address"
    with pytest.raises(ForeignPeerError, match="rank/1"):
        store.get("rank/1")


def test_of_nccl_only_the_rendezvous_has_a_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups that prove themselves exchange data on the host, which gloo carries."""
    make_private(tmp_path)
    made: dict[str, Any] = {}
    proven: list[Any] = []
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.7")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr("gnnexp.comm.meeting._server", lambda *_: HashStore())
    monkeypatch.setattr("gnnexp.comm.communicator._has_own_gpus", lambda *_: True)
    monkeypatch.setattr("gnnexp.comm.communicator._carrier", lambda *_: "nccl")
    monkeypatch.setattr("gnnexp.comm.communicator.prove", lambda *given: proven.append(given))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: made.update(options, backend=backend))
    connect(Environment(0, 2, 0, 1), HOST, 20.0, tmp_path)
    assert made["backend"] == "cpu:gloo,cuda:nccl" and isinstance(made["store"], ProvenStore)
    assert proven == [(None, 0, 2, secret_of(tmp_path))]
    exchanged: list[torch.Tensor] = []
    monkeypatch.setattr(dist, "all_to_all_single", lambda out, given, group: exchanged.append(given))
    with pytest.raises(ForeignPeerError):
        prove(None, 0, 2, SECRET)
    assert {tensor.device.type for tensor in exchanged} == {"cpu"}
