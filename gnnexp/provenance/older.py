"""Configurations and records of gnnexp 0.1: configurations are read in today's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Name of today by the first name.
MOVED: Mapping[str, str] = {
    "gnnexp.datasets.dcsbm.Dcsbm": "gnnexp.datasets.generated.dcsbm.Dcsbm",
    "gnnexp.datasets.rmat.Rmat": "gnnexp.datasets.generated.rmat.Rmat",
    "gnnexp.feature_stores.local.LocalStore": "gnnexp.feature_stores.local.LocalOptions",
    "gnnexp.feature_stores.partitioned.PartitionedStore": "gnnexp.feature_stores.partitioned.PartitionedOptions",
    "gnnexp.feature_stores.sliced.SlicedStore": "gnnexp.feature_stores.sliced.SlicedOptions",
    "gnnexp.feature_stores.embedding.EmbeddingStore": "gnnexp.feature_stores.embedding.EmbeddingOptions",
    "gnnexp.feature_stores.embedding.SlicedEmbeddingStore": "gnnexp.feature_stores.embedding.SlicedEmbeddingOptions",
    "gnnexp.feature_stores.static_cache.StaticCache": "gnnexp.feature_stores.static_cache.StaticCacheOptions",
    "gnnexp.feature_stores.sharded_cache.ShardedCache": "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions",
    "gnnexp.launchers.elsewhere.prepared.PreparedLauncher": "gnnexp.launchers.elsewhere.PreparedLauncher",
    "gnnexp.models.gcn.GCN": "gnnexp.models.gcn.GCNOptions",
    "gnnexp.models.sage.SAGE": "gnnexp.models.sage.SAGEOptions",
    "gnnexp.models.sage_pool.SAGEPool": "gnnexp.models.sage_pool.SAGEPoolOptions",
    "gnnexp.models.gin.GIN": "gnnexp.models.gin.GINOptions",
    "gnnexp.models.mlp.MLP": "gnnexp.models.mlp.MLPOptions",
    "gnnexp.models.gat.GAT": "gnnexp.models.gat.GATOptions",
    "gnnexp.models.rgcn.RGCN": "gnnexp.models.rgcn.RGCNOptions",
    "gnnexp.models.pyg.PyG": "gnnexp.models.pyg.PyGOptions",
    "gnnexp.datasets.aminer.Aminer": "gnnexp.datasets.published.aminer.Aminer",
    "gnnexp.datasets.dgl_builtin.DglBuiltin": "gnnexp.datasets.published.dgl_builtin.DglBuiltin",
    "gnnexp.datasets.digits.Digits": "gnnexp.datasets.published.digits.Digits",
    "gnnexp.datasets.fb100.Fb100": "gnnexp.datasets.published.fb100.Fb100",
    "gnnexp.datasets.graphdata_npz.GraphDataNpz": "gnnexp.datasets.published.npz.GraphDataNpz",
    "gnnexp.datasets.heterophilous_npz.HeterophilousNpz": "gnnexp.datasets.published.npz.HeterophilousNpz",
    "gnnexp.datasets.ogb.Ogb": "gnnexp.datasets.published.ogb.Ogb",
    "gnnexp.datasets.planetoid.Planetoid": "gnnexp.datasets.published.planetoid.Planetoid",
    "gnnexp.datasets.triples.Triples": "gnnexp.datasets.published.triples.Triples",
    "gnnexp.datasets.formats.dgl_graph.DglGraph": "gnnexp.datasets.formats.dgl.dgl_graph.DglGraph",
    "gnnexp.datasets.formats.dgl_partitions.DglPartitions": "gnnexp.datasets.formats.dgl.dgl_partitions.DglPartitions",
    "gnnexp.datasets.formats.graphbolt.GraphBolt": "gnnexp.datasets.formats.dgl.graphbolt.GraphBolt",
    "gnnexp.datasets.formats.graphstorm.GraphStorm": "gnn_gconstruct.graphstorm.GraphStorm",
    "gnnexp.paradigms.external.paradigm.External": "gnnexp.paradigms.external.command.Command",
    "gnnexp.partitioners.streams.dbh.DbhPartitioner": "gnnexp.partitioners.dbh.DbhPartitioner",
    "gnnexp.partitioners.streams.greedy.GreedyPartitioner": "gnnexp.partitioners.greedy.GreedyPartitioner",
    "gnnexp.partitioners.streams.hdrf.HdrfPartitioner": "gnnexp.partitioners.hdrf.HdrfPartitioner",
    "gnnexp.partitioners.streams.libra.LibraPartitioner": "gnnexp.partitioners.libra.LibraPartitioner",
    "gnnexp.partitioners.streams.restream.RestreamPartitioner": "gnnexp.partitioners.restream.RestreamPartitioner",
    "gnnexp.partitioners.streams.spring.SpringPartitioner": "gnnexp.partitioners.spring.SpringPartitioner",
    "gnnexp.partitioners.streams.two_ps_l.TwoPsLPartitioner": "gnnexp.partitioners.two_ps_l.TwoPsLPartitioner",
    "gnnexp.samplers.dgl.DGLSampler": "gnnexp.samplers.dgl.DGLOptions",
    "gnnexp.samplers.full.FullSampler": "gnnexp.samplers.full.FullOptions",
    "gnnexp.samplers.fused.FusedSampler": "gnnexp.samplers.fused.FusedOptions",
    "gnnexp.tasks.link_prediction.LinkPrediction": "gnnexp.tasks.link_prediction.LinkPredictionOptions",
    "gnnexp.tasks.node_classification.NodeClassification": "gnnexp.tasks.node_classification.NodeClassificationOptions",
    "gnnexp.tasks.node_regression.NodeRegression": "gnnexp.tasks.node_regression.NodeRegressionOptions",
}


def name_today(name: str) -> str:
    """The present dotted name of a class."""
    return MOVED.get(name, name)


def moved_targets(node: object) -> dict[str, str]:
    """The classes in a configuration that have moved since: their present names by those that it has."""
    if isinstance(node, Mapping):
        own = node.get("_target_")
        moved = {own: MOVED[own]} if isinstance(own, str) and own in MOVED else {}
        return moved | moved_targets(list(node.values()))
    if isinstance(node, list):
        return {old: new for item in node for old, new in moved_targets(item).items()}
    return {}


# Config keys of today by their earlier names.
KEYS = {"train.lr": "optimizer.lr", "train.weight_decay": "optimizer.weight_decay", "train.optimizer": "optimizer"}
# Optimizers by their name in `train.optimizer`, and whether their kernel was fused.
_OPTIMIZERS = {
    "adam": ("torch.optim.Adam", True),
    "adamw": ("torch.optim.AdamW", True),
    "sgd": ("torch.optim.SGD", False),
}
# Removed options with the only value that is still accepted, by group or by class of the group.
_GONE: Mapping[str, Mapping[str, Any]] = {
    "gnnexp.paradigms.model_averaging.ModelAveraging": {"optimizer_state": "kept"},
    "hardware": {"straggler": None},
}
# Choices that a plug-in has now: the package that Python imports.
OF_PLUGINS = {"dataset=graphstorm": "gnn_gconstruct"}
# Messages about removed options that a user may still set.
GONE = {"hardware.straggler": "is gone: gnnexp slows no rank down any more"}


def as_today(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration with the groups and options of today.

    A removed option stays if its value is not the accepted one: the check of the configuration then reports it.
    """
    config, train = {group: _without_gone(group, node) for group, node in config.items()}, config.get("train")
    if "optimizer" in config or not isinstance(train, Mapping):
        return config
    word = train.get("optimizer", "adam")
    if word not in _OPTIMIZERS:
        return config
    moved = {key.partition(".")[2] for key in KEYS}
    return {
        **config,
        "train": {key: value for key, value in train.items() if key not in moved},
        "optimizer": _optimizer(word, train.get("lr", 0.003), train.get("weight_decay", 0.0)),
        "scheduler": None,
    }


def _optimizer(word: str, lr: object, weight_decay: object) -> dict[str, Any]:
    target, fused = _OPTIMIZERS[word]
    return {
        "_target_": target,
        "_partial_": True,
        "lr": lr,
        "weight_decay": weight_decay,
        **({"fused": True} if fused else {}),
    }


def _without_gone(group: str, node: Any) -> Any:  # noqa: ANN401  or a topmost value
    if not isinstance(node, Mapping):
        return node
    gone = _GONE.get(str(node.get("_target_", group)), {})
    return {key: _without_gone(key, value) for key, value in node.items() if key not in gone or value != gone[key]}
