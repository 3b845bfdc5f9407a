"""One process that trains on the whole graph with PyTorch Geometric, an epoch whenever a line arrives on stdin.

The graph is read as `edge_index` or, with `csr`, as a sparse adjacency matrix of torch, PyG's two ways. Layers, widths,
dropout and optimizer are those of the configuration. Threads come from the environment, as gnnexp's ranks get them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GAT, GCN, GraphSAGE  # type: ignore[import-not-found,import-untyped,unused-ignore]

MODELS: dict[str, Any] = {"GCN": GCN, "SAGE": GraphSAGE, "GAT": GAT}


def main() -> None:
    request = json.loads(sys.argv[1])
    config = request["config"]
    torch.set_num_threads(int(request["threads"]))
    torch.manual_seed(0)
    x, y, train, edges = read(Path(request["graph"]), csr=request["csr"])
    net = make(config["model"], x.shape[1], int(y.max()) + 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=config["optimizer"]["lr"])
    net.train()
    for _ in sys.stdin:
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = cross_entropy(net(x, edges)[train], y[train])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        print(json.dumps({"epoch_s": time.perf_counter() - began, "loss": loss.item()}), flush=True)


def read(folder: Path, *, csr: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, labels, training vertices, and the in-edges: `edge_index` `[2, E]`, or a sparse CSR `[V, V]`."""
    indptr, indices, x, y, train = (
        torch.from_numpy(np.load(folder / f"{name}.npy"))
        for name in ("indptr", "indices", "features", "labels", "train")
    )
    num_vertices = len(indptr) - 1
    if csr:
        edges = torch.sparse_csr_tensor(
            indptr.long(), indices.long(), torch.ones(len(indices)), (num_vertices, num_vertices)
        )
    else:
        edges = torch.stack([indices.long(), torch.arange(num_vertices).repeat_interleave(indptr.diff())])
    return x.float(), y.long(), train.long(), edges


def make(model: dict[str, Any], in_dim: int, out_dim: int) -> torch.nn.Module:
    """PyG's own stack of layers. GCN keeps its normalized weights from the first epoch on (`cached`)."""
    name = str(model["_target_"]).rpartition(".")[2].removesuffix("Options")
    of: dict[str, dict[str, Any]] = {"GCN": {"cached": True}, "GAT": {"heads": model.get("heads")}}
    net: torch.nn.Module = MODELS[name](
        in_dim, model["hidden"], model["layers"], out_dim, dropout=model["dropout"], **of.get(name, {})
    )
    return net


if __name__ == "__main__":
    main()
