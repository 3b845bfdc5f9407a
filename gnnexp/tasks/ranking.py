"""Filtered ranks of links among all vertices, in bounded memory (Bordes et al., NeurIPS 2013).

Scores are computed in double precision and compared in single precision. Scores that differ only by rounding are
therefore ties. So a link's rank depends neither on the size of pieces nor on the process that computes it.
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
from gnnexp.tasks.negatives import KnownLinks

_DOUBLE = 8
# Bytes per score: the score itself, its single-precision copy, and a buffer for the product.
_SCORE_BYTES = 2 * _DOUBLE + 4


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores links in double precision, and returns single precision.

    Attributes:
        decoder: double-precision copy of the decoder.
        outputs: `[V, C]` outputs of all vertices, in memory or mapped.
        device: where scores are computed.
    """

    decoder: Decoder
    outputs: Tensor
    device: torch.device

    @staticmethod
    def of(decoder: Decoder, outputs: Tensor) -> Scorer:
        """A scorer on the decoder's device, or on that of `outputs` if the decoder has no parameters."""
        device = next((parameter.device for parameter in decoder.parameters()), outputs.device)
        return Scorer(copy.deepcopy(decoder).to(torch.float64).requires_grad_(False).eval(), outputs, device)

    def rows(self, ids: Tensor | slice) -> Tensor:
        """`[n, C]` outputs of vertices `ids`, in double precision on the scorer's device."""
        return self.outputs[ids].to(device=self.device, dtype=torch.float64)

    def pairs(self, links: Tensor) -> np.ndarray:
        """`[n]` float32 scores of links `[n, 2 | 3]`."""
        relation = self._relation(links)
        return self._single(self.decoder.score(self.rows(links[:, 0]), relation, self.rows(links[:, -1])))

    def against(self, links: Tensor, heads: bool, rows: Tensor, first: int, last: int) -> np.ndarray:
        """`[n, last - first]` float32 scores of links, with one end replaced by each vertex of `first:last`.

        `rows` `[n, C]` are the outputs of the ends that are kept; `heads`: whether heads are replaced, else tails.
        """
        others = self.rows(slice(first, last))
        return self._single(self.decoder.against(rows, self._relation(links), others, heads=heads))

    def _relation(self, links: Tensor) -> Tensor | None:
        return links[:, 1].to(self.device) if links.shape[1] == 3 else None

    @staticmethod
    def _single(scores: Tensor) -> np.ndarray:
        return scores.to(torch.float32).cpu().contiguous().numpy()


def pair_scores(scorer: Scorer, links: Tensor, budget: int) -> Iterator[np.ndarray]:
    """Scores `[n]` of links `[n, 2 | 3]`, piece by piece, within about `budget` bytes."""
    columns = 4 * scorer.outputs.shape[1] + scorer.decoder.floats_per_score
    for piece in torch.split(links, max(1, budget // (_DOUBLE * columns))):
        yield scorer.pairs(piece)


def negatives_of_links(negatives: Tensor, chosen: Tensor, num_links: int) -> Tensor:
    """The negatives of links `chosen`: of m negatives and n links, link i has those from i m / n to (i + 1) m / n."""
    first, last = (number * negatives.shape[0] // num_links for number in (chosen, chosen + 1))
    lengths = last - first
    ends = lengths.cumsum(0)
    within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(ends - lengths, lengths)
    return negatives[torch.repeat_interleave(first, lengths) + within]


def filtered_ranks(
    scorer: Scorer, links: Tensor, known_tails: KnownLinks, known_heads: KnownLinks, budget: int
) -> Iterator[np.ndarray]:
    """Ranks of links, piece by piece: all vertices replace the tail, then the head.

    The rank is 1 + the number of candidates that score higher + half the number that score the same. Candidates that
    make a known link do not count.

    Args:
        scorer: scores links from the outputs.
        links: `[n, 2 | 3]` links to rank; all are known links.
        known_tails: all known links by head.
        known_heads: all known links by tail.
        budget: bytes that may be used.

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
    """`(links, candidates)`: sizes of the pieces that are scored at once.

    Pieces have many links rather than many candidates, because each piece of links reads all outputs.
    """
    num_nodes, columns = scorer.outputs.shape
    per_score = _SCORE_BYTES + _DOUBLE * scorer.decoder.floats_per_score
    # At most a quarter for rows of candidates, as stored and in double precision, and a quarter for scores of one link.
    width = max(1, min(num_nodes, budget // (4 * 2 * _DOUBLE * columns), budget // (4 * per_score)))
    per_link = width * per_score + 4 * _DOUBLE * columns
    return max(1, min(num_links, budget // 2 // per_link)), width
