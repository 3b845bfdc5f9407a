"""Link prediction: pairs are trained against drawn negatives. Metrics are ranks among all vertices, or OGB's Hits@K.

Definitions: docs/links.md. Sources: R-GCN (Schlichtkrull et al., ESWC 2018), OGB (Hu et al., NeurIPS 2020).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.options import wrong_options
from gnnexp.components.schema import MOST_COUNTED
from gnnexp.components.setting import Setting
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.block import BatchKey
from gnnexp.graph.graph import Graph
from gnnexp.tasks.base import HOST, Examples, Scores, TaskOptions, wanted_device
from gnnexp.tasks.decoders import Decoder, DistMult
from gnnexp.tasks.metrics import hits_of_ranks, hits_over_negatives, mean_reciprocal_rank
from gnnexp.tasks.negatives import Corrupt, KnownLinks, Negatives, Sampling
from gnnexp.tasks.pairs import Pairs, PairTask, numbered
from gnnexp.tasks.ranking import Scorer, filtered_ranks, negatives_of_links, pair_scores

Weighting = Literal["each", "balanced"]
_SPLITS = {"val": "valid", "test": "test"}
_HITS = re.compile(r"hits@[1-9][0-9]*")
# K of Hits@K. Ranks: as in papers on knowledge graphs. Fixed negatives: as on OGB's leaderboards (collab 50, ppa 100).
_OF_RANKS, _OVER_NEGATIVES = (1, 3, 10), (10, 20, 50, 100)
_DISTMULT = "task.decoder._target_=gnnexp.tasks.decoders.DistMult"
_FIX = (
    "choose one with links: dataset=ogb dataset.name=ogbl-ddi, dataset=fb15k_237; or hold some out: "
    "set dataset.link_split={val:0.05,test:0.1}"
)


@dataclass(frozen=True)
class LinkPredictionOptions(TaskOptions):
    """Binary cross-entropy of links against negatives.

    Attributes:
        dim: number of columns of the model's output; null = `model.hidden`.
        decoder: scores a pair from the outputs of its ends (`gnnexp.tasks.decoders`, or your own); null = DistMult.
        negatives: k, number of negatives that are drawn for each link in each epoch.
        sampling: `uniform`, `per_source` or `in_batch` (see `Negatives`).
        corrupt: which end `per_source` and `in_batch` draw: `tail`, `head`, or `both` (at random for each negative).
        avoid_positives: draw a negative again if it is a training link (in up to 16 tries).
        exclude_targets: message passing leaves out the links of the batch itself, in both directions.
        weighting: `each`: the loss of a link is the mean over its 1 + k pairs (R-GCN). `balanced`: the loss of the
            positive pair plus the mean over the negatives (OGB).
        l2: weight of the L2 penalty (R-GCN's authors: 0.01). The penalty of a pair is the sum of three mean squares:
            of both ends' outputs and of the relation's parameters. The penalty of a link is the mean over its pairs.
        metric: the metric that decides the best epoch: `mrr` or `hits@K`. `auto`: `hits@20` if there are fixed
            negatives, else `mrr`.
    """

    pairs = True

    dim: int | None = None
    decoder: Decoder | None = None
    negatives: int = 1
    sampling: Sampling = "uniform"
    corrupt: Corrupt = "tail"
    avoid_positives: bool = True
    exclude_targets: bool = False
    weighting: Weighting = "each"
    l2: float = 0.0
    metric: str = "auto"

    def __post_init__(self) -> None:
        ConfigError.raise_all([*self.plan.problems(), *self._problems()])

    @cached_property
    def plan(self) -> Negatives:
        """How negatives are drawn."""
        return Negatives(self.negatives, self.sampling, self.corrupt, self.avoid_positives)

    @cached_property
    def template(self) -> Decoder:
        """The decoder, which is never set up. A rank makes a copy."""
        return DistMult() if self.decoder is None else self.decoder

    @property
    def negatives_per_link(self) -> int:
        """See `negatives`."""
        return self.negatives

    @property
    def usual_metric(self) -> str:
        """See `metric`."""
        return "mrr" if self.metric == "auto" else self.metric

    def _problems(self) -> list[Problem]:
        dims = f"must be at least 1, and at most {MOST_COUNTED:,}, or null for model.hidden"
        is_metric = self.metric in ("auto", "mrr") or _HITS.fullmatch(self.metric) is not None
        return wrong_options(
            "task",
            (self.dim is None or 1 <= self.dim <= MOST_COUNTED, "dim", self.dim, dims, "null"),
            (0 <= self.l2 < float("inf"), "l2", self.l2, "must be 0 or positive, and finite", 0),
            (is_metric, "metric", self.metric, "must be auto, mrr, or hits@K for a K from 1 on", "auto"),
        )

    def check_data(self, graph: Graph) -> list[Problem]:
        """There must be training links, a decoder that uses their relations, and a metric that fits the splits."""
        train = graph.links.get("train")
        if train is None or not train.shape[0]:
            what = "has no links" if not graph.links else f"has links {sorted(graph.links)}, none to train on"
            return [Problem("dataset", graph.name, what, _FIX)]
        problems = []
        if train.shape[1] == 3 and not self.template.typed:
            problems.append(
                Problem(
                    "task.decoder",
                    type(self.template).__name__,
                    f"{graph.name} has links of several relations, which it scores alike",
                    f"set {_DISTMULT}",
                )
            )
        if len({links.shape[1] for links in graph.links.values()}) > 1:
            widths = ", ".join(f"{links.shape[1]} ({name})" for name, links in graph.links.items())
            problems.append(
                Problem(
                    "dataset",
                    graph.name,
                    f"its links have different numbers of columns: {widths}",
                    "give links of all splits, and negatives, a relation, or none of them",
                )
            )
        fixed = [name for name in _SPLITS.values() if f"{name}_neg" in graph.links]
        if fixed and any(name in graph.links and name not in fixed for name in _SPLITS.values()):
            problems.append(
                Problem(
                    "dataset",
                    graph.name,
                    f"has fixed negatives of {' and '.join(fixed)}, but not of "
                    "the other split: its metrics would be others",
                    "give it valid_neg and test_neg, or neither",
                )
            )
        if self.metric == "mrr" and fixed:
            problems.append(
                Problem(
                    "task.metric",
                    "mrr",
                    f"{graph.name} has fixed negatives of {' and '.join(fixed)}, "
                    "for all links alike: no link has a rank of its own",
                    "set task.metric=hits@20",
                )
            )
        return [*problems, *self._negative_problems(graph, fixed)]

    def _negative_problems(self, graph: Graph, fixed: Sequence[str]) -> list[Problem]:
        """With fewer than K negatives, Hits@K is 1 for any model."""
        asked = "hits@20" if self.metric == "auto" else self.metric
        counts = [graph.links[f"{name}_neg"].shape[0] for name in fixed]
        if not counts or not _HITS.fullmatch(asked) or min(counts) >= int(asked.removeprefix("hits@")):
            return []
        fix = f"set task.metric=hits@{max(1, min(counts) // 2)}, or give more negatives"
        return [
            Problem(
                "task.metric",
                asked,
                f"{graph.name} has {min(counts):,} fixed negatives, so that any model would have the value 1",
                fix,
            )
        ]

    def needs(self, setting: Setting, facts: GraphFacts) -> list[Need]:
        """Memory for decoding the pairs of a step, forward and backward, and for the indexes of known links."""
        links = {name: count for name, count in facts.links if not name.endswith("_neg")}
        size, ranks = setting.train.batch_size, setting.hardware.nodes * setting.hardware.workers
        pairs = -(-min(size or links["train"], links["train"]) // ranks) * (1 + self.plan.count)
        itemsize = torch.empty(0, dtype=getattr(torch, setting.train.dtype)).element_size()
        device, ends = wanted_device(setting), min(2 * pairs, facts.num_nodes)
        floats = pairs * self.template.floats_per_pair(facts.num_classes, device) + 2 * ends * facts.num_classes
        return [
            Need(f"decoding {pairs:,} pairs", "device", floats * itemsize),
            Need("known links", "host", 3 * (8 * facts.num_nodes + 16 * sum(links.values()))),
        ]

    def num_outputs(self, graph: Graph, hidden: int) -> int:
        """See `dim`."""
        return hidden if self.dim is None else self.dim

    def make(self) -> LinkPrediction:
        """The task of a rank."""
        return LinkPrediction(self)


class LinkPrediction(PairTask):
    """Links of a rank with their negatives.

    Attributes:
        head: the decoder, after `decoder` has made it.
    """

    options: LinkPredictionOptions
    head: Decoder

    @property
    def primary_metric(self) -> str:
        """See `LinkPredictionOptions.metric`."""
        return "hits@20" if self.options.metric == "auto" and self._fixed else self.options.usual_metric

    def setup(self, graph: Graph, device: torch.device = HOST) -> None:
        """Store the links, and index those that negatives avoid. Labels come to the device with each batch's pairs."""
        self._links = graph.links
        self._train = np.ascontiguousarray(graph.links["train"].numpy())
        self._num_nodes, self._fixed = graph.num_nodes, any(f"{name}_neg" in graph.links for name in _SPLITS.values())
        typed = [links for links in graph.links.values() if links.shape[1] == 3 and links.shape[0]]
        self.num_relations = max((int(links[:, 1].max()) + 1 for links in typed), default=0)
        avoided = [graph.links["train"]] if self.options.plan.avoid else []
        self._avoided = KnownLinks.of(avoided, graph.num_nodes)

    # --- training --------------------------------------------------------------------------------------------------
    def targets(self) -> Tensor:
        """Indices of the training links."""
        return torch.arange(self._train.shape[0])

    def links(self, numbers: Tensor) -> Tensor:
        """`[t, 2 | 3]` training links at the indices `numbers` `[t]`."""
        return torch.from_numpy(self._train[numbers.numpy()])

    def homes(self, targets: Tensor) -> Tensor:
        """`[t]` heads of the links: the owner of the head trains a link."""
        return self.links(targets)[:, 0]

    def hidden_links(self, batch: Tensor) -> Tensor | None:
        """See `exclude_targets`."""
        return self.links(batch) if self.options.exclude_targets else None

    def decoder(self, num_outputs: int, *, seed: int, dtype: torch.dtype, device: torch.device) -> Decoder:
        """Make the decoder, and keep it as `head`."""
        self.head = copy.deepcopy(self.options.template)
        self.head.setup(num_outputs, self.num_relations, seed=seed, dtype=dtype, device=device)
        return self.head

    def examples(self, chosen: Tensor, batch: Tensor, key: BatchKey) -> Pairs:
        """Links with their negatives. The negatives of a link do not depend on the rank that has it."""
        count, k = chosen.numel(), self.options.plan.count
        links = self._train[chosen.numpy()]
        heads, tails = self.options.plan.draw(
            self._train, chosen.numpy(), batch.numpy(), self._num_nodes, self._avoided, key
        )
        ends = torch.from_numpy(np.concatenate([links[:, 0], heads, links[:, -1], tails]))
        vertices, places = numbered(ends, self._num_nodes)
        head, tail = places.tensor_split(2)
        kinds = torch.from_numpy(links[:, 1]) if links.shape[1] == 3 else None
        relation = None if kinds is None else torch.cat((kinds, kinds.repeat_interleave(k)))
        positive = torch.arange(count * (1 + k)) < count
        own, other = (1 / (1 + k), 1 / (1 + k)) if self.options.weighting == "each" else (1.0, 1 / k)
        weights = torch.full((count * (1 + k),), other, dtype=torch.float64).masked_fill_(positive, own)
        numbers = torch.cat((chosen * (1 + k), ((chosen * (1 + k))[:, None] + 1 + torch.arange(k)).flatten()))
        return Pairs(vertices, count, head, tail, relation, positive, weights, numbers, key)

    def decode(self, outputs: Tensor, examples: Examples) -> Tensor:
        """`[p]` logits of the pairs. With `l2`, `[p, 2]`: logits and the penalties of the pairs."""
        assert isinstance(examples, Pairs)
        scores = self.head.trained(outputs, examples)
        if self.options.l2 == 0:
            return scores
        squares = self._of_ends(outputs.square().mean(1), examples)
        parameters = self.head.relations()
        if parameters is not None:
            kinds = examples.relation if examples.relation is not None else torch.zeros_like(examples.head)
            squares = squares + parameters.square().flatten(1).mean(1).index_select(0, kinds.to(outputs.device))
        return torch.stack((scores, squares), 1)

    def _of_ends(self, values: Tensor, pairs: Pairs) -> Tensor:
        """`[p]` sums of both ends' `values` `[m]`."""
        head, tail = (values.index_select(0, ends.to(values.device)) for ends in (pairs.head, pairs.tail))
        return head + tail

    def loss_sum(self, scores: Tensor, examples: Examples) -> Tensor:
        """Sum of the losses of all links. `weighting` decides the weights of a link's pairs."""
        assert isinstance(examples, Pairs)
        logits = scores if self.options.l2 == 0 else scores[:, 0]
        labels, weights = (
            values.to(device=scores.device, dtype=scores.dtype) for values in (examples.positive, examples.weights)
        )
        loss = F.binary_cross_entropy_with_logits(logits, labels, weights, reduction="sum")
        return (
            loss
            if self.options.l2 == 0
            else loss + self.options.l2 / (1 + self.options.plan.count) * scores[:, 1].sum()
        )

    # --- evaluation ------------------------------------------------------------------------------------------------
    def held_out(self, graph: Graph) -> dict[str, Tensor]:
        """Indices of the links of each split."""
        return {
            split: torch.arange(graph.links[name].shape[0] if name in graph.links else 0)
            for split, name in _SPLITS.items()
        }

    @torch.no_grad()
    def score_pairs(self, split: str, outputs: Tensor, chosen: Tensor, budget: int) -> Iterator[Scores]:
        """Arrays `rank`: ranks of each link's tail and head. With fixed negatives: scores `positive` and `negative`.

        Fixed negatives belong to the whole split. Each link scores its share of them.
        """
        name = _SPLITS[split]
        links, scorer = self._links[name], Scorer.of(self.head, outputs)
        fixed = self._links.get(f"{name}_neg")
        if fixed is None:
            for ranks in filtered_ranks(scorer, links[chosen], *self._known, budget):
                yield {"rank": ranks}
            return
        none = np.empty(0, np.float32)
        for scores in pair_scores(scorer, links[chosen], budget):
            yield {"positive": scores, "negative": none}
        for scores in pair_scores(scorer, negatives_of_links(fixed, chosen, links.shape[0]), budget):
            yield {"positive": none, "negative": scores}

    @cached_property
    def _known(self) -> tuple[KnownLinks, KnownLinks]:
        """Links of all splits by head and by tail, which filtered ranks ignore."""
        links = [self._links[name] for name in ("train", *_SPLITS.values()) if name in self._links]
        by_head = KnownLinks.of(links, self._num_nodes)
        return by_head, KnownLinks.of(links, self._num_nodes, by_tail=True) if links[0].shape[1] == 3 else by_head

    def metrics(self, scores: Sequence[Scores]) -> dict[str, float]:
        """`mrr` and `hits@1`, `3`, `10`, or OGB's `hits@10`, `20`, `50`, `100` over fixed negatives; and `metric`.

        The primary metric comes first, because tables show the first one. With fewer than K fixed negatives, Hits@K is
        left out: it would be 1 for any model.
        """
        values = self._metrics(scores) if scores else {}
        return {name: values[name] for name in (self.primary_metric, *values) if name in values}

    def _metrics(self, scores: Sequence[Scores]) -> dict[str, float]:
        joined = {name: np.concatenate([part[name] for part in scores]) for name in scores[0]}
        asked = {int(self.options.metric.removeprefix("hits@"))} if _HITS.fullmatch(self.options.metric) else set()
        if "rank" in joined:
            hits = {f"hits@{k}": hits_of_ranks(joined["rank"], k) for k in sorted(asked.union(_OF_RANKS))}
            return {"mrr": mean_reciprocal_rank(joined["rank"]), **hits}
        return {
            f"hits@{k}": hits_over_negatives(joined["positive"], joined["negative"], k)
            for k in sorted(asked.union(_OVER_NEGATIVES))
            if k <= joined["negative"].size
        }
