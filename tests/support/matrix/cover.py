"""Cases that cover all pairs of values: greedy, from a seed (Cohen et al., "The AETG system", TSE 23(7), 1997)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, product

from matrix.axes import Case, Pair

CANDIDATES, TRIES = 8, 100


def all_pairs(axes: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Every pair of values of two axes."""
    return [((a, x), (b, y)) for a, b in combinations(axes, 2) for x, y in product(axes[a], axes[b])]


def pairs_of(axes: Mapping[str, Sequence[str]], case: Case) -> set[Pair]:
    """The pairs that a case covers."""
    return set(combinations(zip(axes, case, strict=True), 2))  # type: ignore[arg-type]


def covered(
    axes: Mapping[str, Sequence[str]], refusal: Callable[[Case], str], seed: int
) -> tuple[list[Case], dict[Pair, str]]:
    """Cases that cover every pair, and the pairs that no case may have.

    Args:
        axes: the values by axis, the plain one first.
        refusal: why a case cannot be, empty if it can.
        seed: of the draws.

    Returns:
        The cases in the order in which they were found, and the reason of each refused pair. A pair is
        refused if `TRIES` draws of the other axes are refused, and so are the plain values. The reason is that of the
        draw with the fewest changes to the plain values.
    """
    draws, refuse = random.Random(seed), cache(refusal)
    left, cases, refused = dict.fromkeys(all_pairs(axes)), [], {}
    while left:
        pair = next(iter(left))
        found = _best(axes, pair, left, refuse, draws)
        if isinstance(found, str):
            refused[pair] = found
            del left[pair]
            continue
        cases.append(found)
        for one in pairs_of(axes, found):
            left.pop(one, None)
    return cases, refused


def _best(
    axes: Mapping[str, Sequence[str]],
    pair: Pair,
    left: Mapping[Pair, None],
    refuse: Callable[[Case], str],
    draws: random.Random,
) -> Case | str:
    """Of some cases with this pair the one that covers most of what is left; the refusal where there is none."""
    good: list[tuple[int, Case]] = []
    plain = _completed(axes, pair, {axis: values[0] for axis, values in axes.items()})
    first = refuse(plain)
    if not first:
        good.append((_gain(axes, plain, left), plain))
    for _ in range(TRIES):
        case = _drawn(axes, pair, left, draws)
        if not refuse(case):
            good.append((_gain(axes, case, left), case))
        if len(good) >= CANDIDATES:
            break
    return max(good, key=lambda one: one[0])[1] if good else first


def _completed(axes: Mapping[str, Sequence[str]], pair: Pair, others: Mapping[str, str]) -> Case:
    return tuple({**others, **dict(pair)}[axis] for axis in axes)


def _gain(axes: Mapping[str, Sequence[str]], case: Case, left: Mapping[Pair, None]) -> int:
    return sum(one in left for one in pairs_of(axes, case))


def _drawn(axes: Mapping[str, Sequence[str]], pair: Pair, left: Mapping[Pair, None], draws: random.Random) -> Case:
    """The pair, and axis by axis in a drawn order the value that makes most new pairs with those before it."""
    chosen, order, places = dict(pair), [axis for axis in axes if axis not in dict(pair)], list(axes)
    draws.shuffle(order)
    for axis in order:

        def new(value: str, axis: str = axis) -> int:
            ends = [sorted(((axis, value), other), key=lambda end: places.index(end[0])) for other in chosen.items()]
            return sum((one[0], one[1]) in left for one in ends)

        values = list(axes[axis])
        draws.shuffle(values)
        # Now and then any value: the best one may be what a check refuses.
        chosen[axis] = values[0] if draws.random() < 0.3 else max(values, key=new)
    return tuple(chosen[axis] for axis in axes)
