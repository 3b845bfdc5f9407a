#!/usr/bin/env bash
# PyG 2.8.1: RandomLinkSplit replaces the relation named in `rev_edge_types` by the other one turned round.
#
# The manual: "This will ensure that edges of the reverse direction will be split accordingly to prevent any data
# leakage." So one expects the reverses of held-out links to leave, and all else to stay. In fact the whole relation is
# written anew from the links of `edge_types`, in training, validation and test data, without a warning:
# - its own edges without a partner leave, and partners that the data lacks are added;
# - its own attributes become those of the other relation, if the names are equal;
# - an attribute that only the reverse relation has is deleted.
# It is right only if the reverse relation is a copy, as T.ToUndirected makes it.
# Here: four links `buys` 0-0 to 3-3 with prices 1 to 4; a relation `sells` with the reverses 0-0 to 2-2, and two offers
# 0-1 and 1-2 that nobody bought; prices 101 to 105 and a time. No link is held out (0 for validation, 0 for test), so
# that the right answer is the data as it is.
#
# Packages: torch_geometric 2.8.1, torch 2.13.0 (any build), numpy 2. Nothing of gnnexp is used.
# Seen: what `wanted` says below.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place/env"
"$place/env/bin/pip" install -q 'torch==2.13.0' 'torch_geometric==2.8.1' 'numpy>=2,<3'

cat > "$place/split.py" <<'PYTHON'
import warnings

import torch
from torch_geometric.data import HeteroData
from torch_geometric.transforms import RandomLinkSplit

BUYS, SELLS = ("user", "buys", "item"), ("item", "sells", "user")


def tell(name: str, data: HeteroData) -> None:
    """Print the edges and prices of the reverse relation in the order of edges, and its attributes."""
    relation = data[SELLS]
    rows = sorted(zip(*relation.edge_index.tolist(), relation.price.tolist(), strict=True))
    edges = " ".join(f"{tail}-{head}:{price}" for tail, head, price in rows)
    print(f"{name}: {edges}; {', '.join(sorted(relation.keys()))}")


data = HeteroData()
data["user"].num_nodes = data["item"].num_nodes = 4
data[BUYS].edge_index = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3]])
data[BUYS].price = torch.tensor([1, 2, 3, 4])
data[SELLS].edge_index = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 1, 2]])
data[SELLS].price = torch.tensor([101, 102, 103, 104, 105])
data[SELLS].time = torch.tensor([11, 12, 13, 14, 15])
tell("data", data)

options = {"num_val": 0, "num_test": 0, "add_negative_train_samples": False}
split = RandomLinkSplit(edge_types=[BUYS], rev_edge_types=[SELLS], **options)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    training, _, test = split(data)
tell("training", training)
tell("test", test)
PYTHON

seen=$("$place/env/bin/python" "$place/split.py") || true
wanted="data: 0-0:101 0-1:104 1-1:102 1-2:105 2-2:103; edge_index, price, time
training: 0-0:1 1-1:2 2-2:3 3-3:4; edge_index, price
test: 0-0:1 1-1:2 2-2:3 3-3:4; edge_index, price"
printf '%s\n' "$seen"
[ "$seen" = "$wanted" ] || { echo "the behaviour has changed"; exit 1; }
