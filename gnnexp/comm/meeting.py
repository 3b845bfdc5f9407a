"""How the ranks of a run find each other, and prove that they are of this run.

They leave their addresses in a store of torch. On one machine, it is a file that only the user can read. Between
machines it is a server, which everybody in the network can read and write. So each entry carries a proof, and so does
each connection: an HMAC with the run's secret, which lies in the run directory. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from gnnexp.comm.environment import Environment, rendezvous_address
from gnnexp.errors import RunError
from gnnexp.files.private import PRIVATE, private_of, secret_of

_STORE = "store"
_BYTES = 32  # of a proof (SHA-256), and of a nonce: the number with which a rank asks for a proof


class ForeignPeerError(RunError):
    """Somebody takes part who does not know the run's secret."""


class NoAnswerError(RunError):
    """Another rank did not come in time."""


class LostStoreError(RunError):
    """What ranks meet through went away, or was changed."""


@contextmanager
def answers_in_time(timeout_s: float) -> Iterator[None]:
    """Inside of this context, torch's timeouts become a `NoAnswerError` with the time that this rank has waited.

    Raises:
        NoAnswerError: another rank did not come in time.
        LostStoreError: the store went away while ranks met.
    """
    try:
        yield
    except RuntimeError as error:
        message = (str(error).splitlines() or [""])[0]
        if any(words in message.lower() for words in ("timed out", "timeout")):
            raise NoAnswerError(
                f"no answer of another rank within {timeout_s:g} s (hardware.timeout_s): {message}"
            ) from error
        if not isinstance(error, dist.DistStoreError):
            raise
        raise LostStoreError(
            f"the store through which ranks meet ({PRIVATE}/{_STORE} of the run directory, on one "
            f"machine) went away: {message}; to start the ranks again: gnnexp resume"
        ) from error


def _proof(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join(len(part).to_bytes(8, "little") + part for part in parts), "sha256")


class ProvenStore(Store):
    """A store whose entries carry a proof: their writer knew the secret, and wrote them under this key.

    gloo's entries have the rank in the key and its address as the value.

    Args:
        store: where entries lie.
        secret: the secret of the run.
    """

    def __init__(self, store: Store, secret: bytes) -> None:
        super().__init__()
        self._store, self._secret = store, secret

    def set(self, key: str, value: bytes | str) -> None:
        """Write an entry with its proof."""
        content = value.encode() if isinstance(value, str) else bytes(value)
        proven = _proof(self._secret, key.encode(), content) + content
        self._store.set(key, proven)  # type: ignore[arg-type]

    def get(self, key: str) -> bytes:
        """Wait for an entry.

        Raises:
            ForeignPeerError: it has no proof.
        """
        answer = bytes(self._store.get(key))
        if not hmac.compare_digest(_proof(self._secret, key.encode(), answer[_BYTES:]), answer[:_BYTES]):
            raise ForeignPeerError(
                f"the entry {key!r} of the rendezvous is not from a rank of this run: it has no "
                "proof of the run's secret"
            )
        return answer[_BYTES:]

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which has no proof: who changes it can only keep the ranks from meeting."""
        return self._store.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        """Whether all of these entries are there."""
        return self._store.check(keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait for entries."""
        if timeout is None:
            self._store.wait(keys)
        else:
            self._store.wait(keys, timeout)

    def clone(self) -> ProvenStore:
        """Another connection to the same entries."""
        return ProvenStore(self._store.clone(), self._secret)  # type: ignore[attr-defined]  # missing in its stubs

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Not for entries with proofs: nothing here needs it."""
        raise NotImplementedError(key)

    def delete_key(self, key: str) -> bool:
        """Remove an entry; whether it was there."""
        return self._store.delete_key(key)

    def set_timeout(self, timeout: timedelta) -> None:
        """The timeout of each request."""
        self._store.set_timeout(timeout)


def store_of(environment: Environment, timeout: timedelta, run_dir: Path | None) -> Store:
    """The store through which ranks find each other.

    Args:
        environment: this process's place in the run.
        timeout: of each request.
        run_dir: directory of the run, None without one (ranks of tests): then entries carry no proof.

    Raises:
        RunError: the run has no secret.
    """
    if run_dir is None:
        return _server(environment, timeout)
    folder, secret = private_of(run_dir), secret_of(run_dir)
    if folder is None or secret is None:
        raise RunError(
            f"{run_dir / PRIVATE} is missing, or others can enter it, so the ranks cannot prove that they "
            f"are this run's; to start them again: gnnexp resume {run_dir}"
        )
    if environment.local_ranks == environment.num_ranks and rendezvous_address()[0] == "127.0.0.1":
        store: Store = FileStore(str(folder / _STORE), environment.num_ranks)
        store.set_timeout(timeout)
        return store
    return ProvenStore(_server(environment, timeout), secret)


def _server(environment: Environment, timeout: timedelta) -> Store:
    """A store in the network (MASTER_ADDR, MASTER_PORT). Rank 0 serves it, unless torchrun does.

    If MASTER_ADDR is 127.0.0.1, rank 0 listens on the loopback interface only. By default torch would listen on all
    interfaces of the machine.
    """
    host, port = rendezvous_address()
    of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serves, listening = environment.rank == 0 and not of_torchrun, None
    if serves and host == "127.0.0.1":
        server = socket.create_server((host, port))
        listening = server.detach()
    store = TCPStore(
        host, port, environment.num_ranks, serves, timeout, wait_for_workers=False, master_listen_fd=listening
    )
    # The store of torchrun outlives a failed attempt, and still has its entries.
    return PrefixStore(f"gnnexp/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '')}", store) if of_torchrun else store


def prove(group: dist.ProcessGroup | None, rank: int, size: int, secret: bytes) -> None:
    """Every connection of a group of gloo proves at both ends that it knows the secret. All ranks of it call this.

    gloo takes whoever connects first. Each rank asks every other one with a number that nobody can foresee. What it
    sends crosses the connection to this rank only.

    Args:
        group: torch's group, None for the default group.
        rank, size: this rank's place in the group, and the number of its ranks.
        secret: the secret of the run.

    Raises:
        ForeignPeerError: the other end of a connection does not know the secret.
    """
    nonces = [secrets.token_bytes(_BYTES) for _ in range(size)]
    asked = _exchange(nonces, group)
    answers = _exchange([_answer(secret, rank, peer, nonce) for peer, nonce in enumerate(asked)], group)
    wanted = [_answer(secret, peer, rank, nonce) for peer, nonce in enumerate(nonces)]
    foreign = [peer for peer in range(size) if not hmac.compare_digest(wanted[peer], answers[peer])]
    if foreign:
        raise ForeignPeerError(
            f"the connections to the ranks {foreign} are not to ranks of this run: their other ends "
            "do not know the run's secret"
        )


def _answer(secret: bytes, sender: int, receiver: int, nonce: bytes) -> bytes:
    """What `sender` answers to the nonce of `receiver`. No entry has this form: an entry's proof has two parts."""
    pair = sender.to_bytes(8, "little") + receiver.to_bytes(8, "little")
    return _proof(secret, bytes([0]), pair, nonce)


def _exchange(pieces: list[bytes], group: dist.ProcessGroup | None) -> list[bytes]:
    """Piece r of every rank goes to rank r; the pieces for this rank, ordered by sending rank."""
    sent = torch.frombuffer(bytearray(b"".join(pieces)), dtype=torch.uint8)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    content = received.numpy().tobytes()
    return [content[start : start + _BYTES] for start in range(0, len(content), _BYTES)]
