"""How many parts a graph is cut into, and which rank trains which of them (SDT-GNN, section III-C)."""

from __future__ import annotations


def num_parts(data_bytes: int, ranks: int, memory: int | None, reserve: int | None = None) -> int:
    """As many parts as ranks where these have room for all of the data, else as many as it takes.

    Args:
        data_bytes: S, of topology and features; in memory about what they are on disk.
        ranks: q.
        memory: M, bytes of a rank; None: there is room.
        reserve: T < M, bytes of M that computing takes; None: two thirds (the paper measured a GAT of 3 layers).

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
    """Parts are dealt in turn: rank r trains r, r + q, r + 2q, ..."""
    return range(rank, parts, ranks)
