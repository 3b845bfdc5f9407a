"""Well-known names that gnnexp does not have: what each is, and the nearest way that gnnexp has.

One line per name. Without it, the hint would be the most similar word, which means something else: `model=hgt` is not
`model=gat`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_EXTERNAL = "its own code under gnnexp's sweeps: paradigm=external (docs/howto/external.md)"
_OWN_LAYER = "a layer of your own (docs/howto/layer.md)"
_OWN_SAMPLER = "a sampler of your own (docs/howto/sampler.md)"
_RECORD = "the record stays in files: tracker=none; gnnexp export writes them as Parquet"


@dataclass(frozen=True)
class KnownElsewhere:
    """A name that gnnexp does not have.

    Attributes:
        what: what it is, in a few words.
        nearest: overrides that come nearest, in the order of the command line; empty if there are none.
        further: another way, in words.
    """

    what: str
    nearest: tuple[str, ...] = ()
    further: str = ""

    def fix(self) -> str:
        """The hint of a problem."""
        ways = [" ".join(self.nearest), self.further]
        return f"nearest: {'; or '.join(filter(None, ways))}"


def _named(names: str, known: KnownElsewhere) -> Iterator[tuple[str, KnownElsewhere]]:
    """The entries of several names, `group=choice` each."""
    yield from ((name, known) for name in names.split())


ELSEWHERE: Mapping[str, KnownElsewhere] = dict(
    entry
    for entries in (
        # Systems and libraries.
        _named("system=pyg system=pytorch_geometric", KnownElsewhere("PyTorch Geometric", ("model=pyg",), _EXTERNAL)),
        _named("system=graphstorm system=gigl system=glt", KnownElsewhere("a library of its own", (), _EXTERNAL)),
        _named(
            "system=cugraph system=wholegraph",
            KnownElsewhere("features on all GPUs of a machine", ("system=quiver",), _EXTERNAL),
        ),
        _named("system=bns_gcn", KnownElsewhere("sampled boundaries", ("system=neutronstar_comm",), _EXTERNAL)),
        _named("system=adaqp", KnownElsewhere("stale boundaries", ("system=pipegcn",), _EXTERNAL)),
        _named("system=roc", KnownElsewhere("full-graph training", ("system=neutronstar_comm",), _EXTERNAL)),
        _named("system=cagnet", KnownElsewhere("its 1D algorithm", ("system=cagnet_1d",), _EXTERNAL)),
        _named("system=plexus system=scalegnn", KnownElsewhere("tensor parallelism", ("system=neutrontp",), _EXTERNAL)),
        _named(
            "system=apt",
            KnownElsewhere(
                "a choice among paradigms", (), "run each (docs/howto/sweep.md), and rank them: gnnexp plan"
            ),
        ),
        _named("system=gnnlab", KnownElsewhere("its cache", ("system=gnnlab_cache",), _EXTERNAL)),
        _named("system=salient", KnownElsewhere("its successor", ("system=salientpp",), _EXTERNAL)),
        _named(
            "system=ducati system=legion",
            KnownElsewhere("cached features", ("system=quiver",), "feature_store=cached"),
        ),
        _named(
            "system=marius system=mariusgnn system=diskgnn system=ginex",
            KnownElsewhere("features on disk", ("feature_store=local", "feature_store.tier=host"), "docs/offload.md"),
        ),
        _named("system=cluster_gcn system=graphsaint", KnownElsewhere("batches of parts", ("system=sdt_gnn",))),
        # Models.
        _named("model=hgt model=han model=simple_hgn", KnownElsewhere("a model of types", ("model=rgcn",), _OWN_LAYER)),
        _named("model=rgat", KnownElsewhere("attention by relation", ("model=rgcn",), _OWN_LAYER)),
        _named("model=gatv2", KnownElsewhere("PyG's GATv2Conv", ("model=pyg",))),
        _named(
            "model=appnp model=sgc model=gcnii model=gcn2 model=pna model=jknet model=gps model=mpnn",
            KnownElsewhere("a layer of PyG", ("model=pyg",), f"model.module=torch_geometric.nn.…; or {_OWN_LAYER}"),
        ),
        # Data.
        _named(
            "dataset=igb dataset=igbh dataset=igb_tiny",
            KnownElsewhere("folders of .npy files", ("dataset=edge_list",), "docs/howto/dataset.md"),
        ),
        _named(
            "dataset=graphland dataset=relbench dataset=tgb",
            KnownElsewhere("tables", ("dataset=tables",), "gnnexp data PATH says how to read a folder"),
        ),
        # Tasks, trackers, samplers, partitioners.
        _named(
            "task=graph_classification task=graph_regression",
            KnownElsewhere("a task over many graphs", ("task=node_classification",), "PyG trains on many small graphs"),
        ),
        _named(
            "task=edge_classification task=edge_regression",
            KnownElsewhere("a task on edges", ("task=link_prediction",)),
        ),
        _named(
            "tracker=wandb tracker=tensorboard tracker=comet tracker=aim",
            KnownElsewhere("another tracker", ("tracker=mlflow",), _RECORD),
        ),
        _named(
            "sampler=ladies sampler=fastgcn sampler=shadow",
            KnownElsewhere("another sampler", ("sampler=fused",), _OWN_SAMPLER),
        ),
        _named("sampler=neighbor sampler=uniform", KnownElsewhere("uniform neighbours", ("sampler=fused",))),
        _named(
            "sampler=cluster sampler=graphsaint sampler=saint",
            KnownElsewhere("batches of parts", ("system=sdt_gnn",), _OWN_SAMPLER),
        ),
        _named(
            "partitioner=kaminpar partitioner=mtkahypar partitioner=parmetis",
            KnownElsewhere("an edge-cut of high quality", ("partitioner=metis",)),
        ),
        _named("partitioner=fennel partitioner=ldg", KnownElsewhere("a stream of vertices", ("partitioner=restream",))),
        _named("partitioner=hash", KnownElsewhere("a part by the vertex's hash", ("partitioner=random",))),
        _named("partitioner=ne partitioner=dne", KnownElsewhere("a vertex-cut by expansion", ("partitioner=hdrf",))),
    )
    for entry in entries
)


def known_elsewhere(group: str, word: str) -> KnownElsewhere | None:
    """What a choice of a group is that gnnexp does not have; capitals, hyphens and blanks do not count."""
    return ELSEWHERE.get(f"{group}={word.lower().replace('-', '_').replace(' ', '_')}")
