"""Filtered ranks of links among all vertices, in bounded memory (Bordes et al., NeurIPS 2013).

Scores are made in double precision and compared in single: what is equal but for the rounding of some order of
additions is a tie, so no rank depends on how the work is cut into pieces, nor on which rank has which.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.kernels.graph.links import count_above
from gnnexp.tasks.decoders import Decoder
from gnnexp.tasks.known import KnownLinks

_DOUBLE = 8
# Of a score: itself, its single-precision copy, and what the product needs of the same size.
_SCORE_BYTES = 2 * _DOUBLE + 4


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores of vertices' outputs, in double precision, delivered in single.

    Attributes:
        decoder: its double-precision copy.
        outputs: `[V, C]`, in memory or mapped.
        device: where scores are made.
    """

    decoder: Decoder
    outputs: Tensor
    device: torch.device

    @staticmethod
    def of(decoder: Decoder, outputs: Tensor) -> Scorer:
        """Where the decoder lives."""
        device = next((parameter.device for parameter in decoder.parameters()), outputs.device)
        return Scorer(copy.deepcopy(decoder).to(torch.float64).requires_grad_(False).eval(), outputs, device)

    def rows(self, ids: Tensor | slice) -> Tensor:
        """`[n, C]` outputs of vertices."""
        return self.outputs[ids].to(device=self.device, dtype=torch.float64)

    def pairs(self, links: Tensor) -> np.ndarray:
        """`[n]` float32 scores of links `[n, 2 | 3]`."""
        relation = self._relation(links)
        return self._single(self.decoder.score(self.rows(links[:, 0]), relation, self.rows(links[:, -1])))

    def against(self, links: Tensor, heads: bool, rows: Tensor, first: int, last: int) -> np.ndarray:
        """`[n, last - first]` float32 scores of links with an end replaced by each vertex of `first:last`."""
        others = self.rows(slice(first, last))
        return self._single(self.decoder.against(rows, self._relation(links), others, heads=heads))

    def _relation(self, links: Tensor) -> Tensor | None:
        return links[:, 1].to(self.device) if links.shape[1] == 3 else None

    @staticmethod
    def _single(scores: Tensor) -> np.ndarray:
        return scores.to(torch.float32).cpu().contiguous().numpy()


def pair_scores(scorer: Scorer, links: Tensor, budget: int) -> Iterator[np.ndarray]:
    """Scores `[n]` of links `[n, 2 | 3]`, piece by piece, in about `budget` bytes."""
    columns = 4 * scorer.outputs.shape[1] + scorer.decoder.floats_per_score
    for piece in torch.split(links, max(1, budget // (_DOUBLE * columns))):
        yield scorer.pairs(piece)


def negatives_of_links(negatives: Tensor, chosen: Tensor, num_links: int) -> Tensor:
    """Those of `m` negatives that go with the links `chosen` of n: link i has those from i m / n to (i + 1) m / n."""
    first, last = (number * negatives.shape[0] // num_links for number in (chosen, chosen + 1))
    lengths = last - first
    ends = lengths.cumsum(0)
    within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(ends - lengths, lengths)
    return negatives[torch.repeat_interleave(first, lengths) + within]


def filtered_ranks(
    scorer: Scorer, links: Tensor, known_tails: KnownLinks, known_heads: KnownLinks, budget: int
) -> Iterator[np.ndarray]:
    """Ranks of links among all vertices in the place of their tail, then of their head, piece by piece.

    The rank is 1 + the number of vertices that score higher + half of those that score the same; of both only those
    that do not make a known link.

    Args:
        scorer: of the outputs.
        links: `[n, 2 | 3]`, known ones.
        known_tails: all known links by head.
        known_heads: all known links by tail.
        budget: bytes that this may take.

    Yields:
        float64 ranks, two per link.
    """
    at_once, width = _pieces(scorer, links.shape[0], budget)
    for piece in torch.split(links, at_once):
        own = scorer.pairs(piece)
        for heads, known in ((False, known_tails), (True, known_heads)):
            yield _ranks(scorer, piece, own, heads, known, width)


def _ranks(scorer: Scorer, links: Tensor, own: np.ndarray, heads: bool, known: KnownLinks, width: int) -> np.ndarray:
    fixed = (links[:, -1] if heads else links[:, 0]).contiguous()
    kinds = links[:, 1].contiguous().numpy() if links.shape[1] == 3 else np.empty(0, np.int64)
    rows = scorer.rows(fixed)
    above, ties = np.zeros(own.size, np.int64), np.zeros(own.size, np.int64)
    for first in range(0, scorer.outputs.shape[0], width):
        scores = scorer.against(links, heads, rows, first, first + width)
        count_above(scores, own, first, known.indptr, known.ends, known.types, fixed.numpy(), kinds, above, ties)
    return 1 + above + ties / 2


def _pieces(scorer: Scorer, num_links: int, budget: int) -> tuple[int, int]:
    """`(links, candidates)` whose scores are made at once; many links: each piece reads all outputs."""
    num_nodes, columns = scorer.outputs.shape
    per_score = _SCORE_BYTES + _DOUBLE * scorer.decoder.floats_per_score
    # A quarter for the candidates' rows, as given and in double precision; and no more than a few links' scores.
    width = max(1, min(num_nodes, budget // (4 * 2 * _DOUBLE * columns), budget // (4 * per_score)))
    per_link = width * per_score + 4 * _DOUBLE * columns
    return max(1, min(num_links, budget // 2 // per_link)), width
