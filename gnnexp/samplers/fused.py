"""The default sampler: FastSample's fused neighbour sampling, with draws that are a pure function of their key."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.ops.backends import chosen_kernel
from gnnexp.samplers.base import Key, SampleDevice, Topology
from gnnexp.samplers.device.expansion import DeviceExpansion
from gnnexp.samplers.device.hops import MOST_FANOUT, DeviceHops, assert_same, hop_key, hop_keys, kernels_for
from gnnexp.samplers.expansion import Expansion
from gnnexp.samplers.layerwise import LayerSampler, Neighbours


class FusedSampler(LayerSampler):
    """Uniform neighbour sampling without replacement, directly into CSC (FastSample, section 3.2, Algorithm 1).

    The neighbours that vertex v draws at hop h depend only on (seed, epoch, step, micro, h, v) and on the fanout. They
    do not depend on threads, on ranks, or on other vertices of the batch. The edges of a destination are in the order
    of its draws, or in canonical order if all of them are taken.

    With `device=cuda`, blocks are made on the rank's GPU. They are the same, entry by entry. Each rank also makes its
    first batch on the host, and compares them: so no new kind of GPU, driver or Triton is wrong without a word.
    """

    def __init__(
        self, fanouts: list[int], key: Key = "global", topology: Topology = "replicated",
        threads: int = 1, prefetch: int = 2, device: SampleDevice = "auto",
    ) -> None:
        super().__init__(fanouts, key, topology, threads, prefetch)
        if device not in get_args(SampleDevice):
            raise ConfigError(Problem("sampler.device", device, "must be auto, cpu or cuda", "sampler.device=auto"))
        self.device = device
        self._place: torch.device | None = None
        self._kernel = "torch"

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts of `device=cuda` with other choices."""
        return self._keeps_on_host(experiment) if self.device == "cuda" else []

    def _keeps_on_host(self, experiment: Experiment) -> list[Problem]:
        """Reasons why batches cannot be made on a GPU."""
        problems, fix = [], "set sampler.device=auto"
        if experiment.hardware.device == "cpu":
            problems.append(Problem("sampler.device", "cuda", "the run is on the CPU", "set hardware.device=cuda"))
        if any(getattr(type(self), name) is not getattr(FusedSampler, name) for name in ("sample", "sample_layer")):
            problems.append(Problem("sampler.device", "cuda", f"{type(self).__name__} draws with its own code, which "
                                    "runs on the host", fix))
        if reason := experiment.paradigm.samples_on_host(experiment):
            problems.append(Problem("sampler.device", "cuda", reason, fix))
        if self.fanouts is not None and max(self.fanouts) > MOST_FANOUT:
            problems.append(Problem("sampler.fanouts", list(self.fanouts), f"a GPU draws at most {MOST_FANOUT} "
                                    "neighbours per vertex", f"{fix}, or choose smaller fanouts"))
        return problems

    def place(self, experiment: Experiment, shard: Shard, device: torch.device, comm: Communicator) -> str:
        """The ranks' GPUs if the option, the run and the memory of each GPU allow it, else the host on all ranks.

        Raises:
            ConfigError: `device=cuda`, and the run is on the CPU.
            RunError: `device=cuda`, and the GPU of a rank has too little memory.
        """
        if device.type == "cpu" and self.device == "cuda":
            raise ConfigError(Problem("sampler.device", "cuda", "no CUDA device is visible", "set sampler.device=auto"))
        if "cpu" in (experiment.hardware.device, self.device) or self._keeps_on_host(experiment):
            return "cpu"
        # Ranks that make a batch together must do the same. So one rank without room keeps all of them on the host.
        lacking = "cpu" if device.type == "cpu" else self._lacks_memory(experiment, shard, device)
        if reason := max(map(str, comm.gather_objects(lacking)), key=len):
            if self.device == "cuda":
                raise RunError(f"{reason}; set sampler.device=cpu")
            return reason if reason == "cpu" else f"cpu: {reason}"
        self._place = device
        self._kernel = chosen_kernel(str(getattr(experiment.model.options, "kernel", "auto")), device.type)
        return str(device)

    def _lacks_memory(self, experiment: Experiment, shard: Shard, device: torch.device) -> str:
        """What is needed and what is free on the GPU, if that is too little; else empty.

        Topology, owners, numbers of parallel edges, and tables of vertices are needed. With `auto`, half of the free
        memory remains for training. Ranks that share a GPU share its memory.
        """
        sharing = -(-experiment.hardware.workers // max(1, torch.cuda.device_count()))
        free = torch.cuda.mem_get_info(device)[0] // sharing
        vertex = 4 * max(1, self.threads) + (0 if shard.partition is None else shard.owner.element_size())
        needed = (self.topology_bytes(shard) + vertex * shard.graph.num_nodes
                  + (4 * shard.graph.num_edges if experiment.model.options.needs.edge_identity else 0))
        if needed <= (free // 2 if self.device == "auto" else free):
            return ""
        return f"sampling on the GPU needs {needed} bytes, {free} bytes are free"

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the graph of this rank."""
        super().setup(shard, num_layers)
        graph, hops = self.topology_of(shard), self.hops(num_layers)
        self._expansion = Expansion(graph, shard.needs, hops, shard.names, self.pool)
        self._on_device: DeviceExpansion | None = None
        self._compares = self._place is not None
        if self._place is not None:
            self.there = DeviceHops(graph, shard.needs, hops, self._place, shard.names,
                                    kernels_for(self._place, self._kernel))
            self._on_device = DeviceExpansion(self.there)

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; all hops share one list of vertices."""
        streams = hop_keys(key, self._num_hops)
        if self._on_device is None:
            return Batch(seeds, self._expansion.blocks(seeds, streams), key, global_count)
        blocks, ids = self._on_device.blocks(seeds, streams)
        if self._compares and seeds.numel():
            self._compares = False
            host = self._expansion.blocks(seeds, streams)
            assert_same([block.arrays() for block in blocks], [block.arrays() for block in host])
        return Batch(seeds, blocks, key, global_count, host_ids=ids)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The draws of one hop, on the host."""
        return self._expansion.neighbours(frontier, hop, hop_key(key, hop))
