"""Bytes that each edge of a block takes, by kernel: what autograd keeps, and the largest temporaries next to it.

Memory inside of torch's own operations is not in it: `TensorMeter` does not see it.
"""

from __future__ import annotations

from dataclasses import dataclass

_INDEX = 8  # a position as int64, in which torch's operations take them
PARALLEL = 8 + 4  # the edge's number in the graph, and among parallel edges
_TYPE = 4
_WORDS = 4  # heads that share a random word, see `masks.kept_edges`


@dataclass(frozen=True)
class EdgeKind:
    """How a run computes with edges, as far as their memory depends on it.

    Attributes:
        kernel: implementation of the kernels, such as `torch` (`chosen_kernel`).
        weighted: whether the graph has edge weights.
        identity: bytes per edge of its identity in a block (`of`).
    """

    kernel: str
    weighted: bool = False
    identity: int = 0

    @staticmethod
    def of(kernel: str, *, weighted: bool, drops: bool, parallel: bool, typed: bool) -> EdgeKind:
        """From facts of the graph, and whether the model `drops` edges by identity (`BlockNeeds.edge_identity`)."""
        return EdgeKind(kernel, weighted, drops * (PARALLEL * parallel + _TYPE * typed))


def torch_attention_bytes(heads: int, itemsize: int, *, dropped: bool) -> int:
    """Bytes per edge of attention weights and weighted sums with `model.kernel=torch`, with their backward pass.

    Autograd keeps `E` times: positions of both ends for the scores, of the destination for the quotient, and the order
    of edges for the sum of weights. It also keeps `E x heads` values: scores before LeakyReLU, exponentials, sums at
    the edges, the mask, and the weights. `embedding_bag` keeps sources, and each edge's bag, for every head. The bytes
    are those of the worst of five moments:

    - `draw`: the state of the masks' words, while types of edges enter it. All values but the mask are in use, and the
      scores after LeakyReLU.
    - `mask`: a random number for each head, twice (apart, and stacked), before they become a mask.
    - `sum`: the end of forward.
    - `gather`: backward adds up gradients of the heads' weights: the sum so far, the next head's, and the new sum. The
      bags of two heads are gone.
    - `softmax`: the gradient of the quotient.

    Args:
        heads: number of heads.
        itemsize: bytes of a value.
        dropped: whether weights have dropout.
    """
    values, positions = (
        heads * itemsize,
        5 * _INDEX,
    )  # the fifth: bags of the sum of weights, which float32 on the CPU leaves out
    bags = 2 * _INDEX * heads
    moments = {
        "sum": positions + (4 + dropped) * values + bags,
        "gather": positions + (7 + dropped) * values + bags - 2 * _INDEX * min(heads, 2),
        "softmax": positions + 8 * values,
    }
    if dropped:
        ends = 3 * _INDEX  # position of the destination, and ids of both ends
        moments["draw"] = positions + 5 * values + ends + 5 * _INDEX + 1
        words = (2 + (heads > _WORDS)) * _INDEX  # kind of the edge, state, and a further word
        moments["mask"] = positions + 5 * values + ends + words + bags + heads
    return max(moments.values())
