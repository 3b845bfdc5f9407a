"""GraphSAGE as a plain PyTorch Geometric script: it reads gnnexp's files with numpy, and imports no gnnexp."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

given = os.environ
rank, ranks, device = int(given["RANK"]), int(given["WORLD_SIZE"]), torch.device(given["GNNEXP_DEVICE"])
config = json.loads(Path(given["GNNEXP_CONFIG"]).read_text())
model, train, lr = config["model"], config["train"], config["optimizer"]["lr"]


def read(name):
    return torch.from_numpy(np.load(f"{given['GNNEXP_GRAPH']}/{name}.npy"))


indptr = read("indptr")
destinations = torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff())
data = Data(x=read("features"), y=read("labels"), edge_index=torch.stack([read("indices").long(), destinations]))
data, splits = data.to(device), {name: read(name).to(device) for name in ("train", "val", "test")}

torch.manual_seed(int(given["GNNEXP_SEED"]))  # the same parameters and the same order of targets on every rank
torch.set_num_threads(int(given["GNNEXP_THREADS"]))
net = GraphSAGE(data.num_features, model["hidden"], model["layers"], int(data.y.max()) + 1, model["dropout"]).to(device)
replica = net
if ranks > 1:
    dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
    replica = DistributedDataParallel(net)
optimizer = torch.optim.Adam(net.parameters(), lr=lr, weight_decay=config["optimizer"]["weight_decay"])

for epoch in range(train["epochs"]):
    began, total = time.perf_counter(), torch.zeros((), device=device)
    net.train()
    for batch in torch.randperm(len(splits["train"])).split(train["batch_size"] or len(splits["train"])):
        targets = splits["train"][batch.to(device)[rank::ranks]]
        loss = cross_entropy(replica(data.x, data.edge_index)[targets], data.y[targets], reduction="sum")
        optimizer.zero_grad()
        (loss * ranks / len(batch)).backward()  # the mean of the ranks is the mean of the global batch
        optimizer.step()
        total += loss.detach()
    if ranks > 1:
        dist.all_reduce(total)
    report = {"epoch": epoch, "epoch_s": time.perf_counter() - began, "loss": float(total) / len(splits["train"])}
    if rank == 0:
        with torch.no_grad():
            right = net.eval()(data.x, data.edge_index).argmax(1) == data.y
        report |= {f"acc/{name}": float(right[splits[name]].float().mean()) for name in ("val", "test")}
        with Path(given["GNNEXP_EPOCHS"]).open("a") as file:
            file.write(json.dumps(report) + "\n")

if ranks > 1:
    dist.destroy_process_group()  # a rank that exits with an open gloo group can abort (SIGABRT)
