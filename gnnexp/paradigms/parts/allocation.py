"""How many parts a graph is cut into, and which rank trains which of them (SDT-GNN, section III-C)."""

from __future__ import annotations


def num_parts(data_bytes: int, ranks: int, memory: int | None, reserve: int | None = None) -> int:
    """The number of parts: as many as ranks if all data fits, else as many as needed.

    Args:
        data_bytes: S, bytes of topology and features; about the same in memory as on disk.
        ranks: q, number of ranks.
        memory: M, bytes of a rank; None: enough for all data.
        reserve: T < M, bytes of M for computing; None: two thirds (the paper measured a GAT of 3 layers).

    Returns:
        p: q if S <= q (M - T), else the next whole number from S / (M - T) on.
    """
    if memory is None:
        return ranks
    reserve = 2 * memory // 3 if reserve is None else reserve
    assert 0 <= reserve < memory
    room = memory - reserve
    return ranks if data_bytes <= ranks * room else -(-data_bytes // room)


def parts_of(rank: int, ranks: int, parts: int) -> range:
    """Parts of a rank: rank r trains r, r + q, r + 2q, ..."""
    return range(rank, parts, ranks)
