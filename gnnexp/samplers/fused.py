"""The default sampler: FastSample's fused neighbour sampling, with draws that are a pure function of their key."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.ops.backends import chosen_kernel
from gnnexp.samplers.base import Key, SampleDevice, Topology
from gnnexp.samplers.device import MOST_FANOUT, DeviceExpansion, assert_same, kernels_for
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
        if reason := experiment.paradigm.samples_on_host(experiment):
            problems.append(Problem("sampler.device", "cuda", reason, fix))
        if self.fanouts is not None and max(self.fanouts) > MOST_FANOUT:
            problems.append(Problem("sampler.fanouts", list(self.fanouts), f"a GPU draws at most {MOST_FANOUT} "
                                    "neighbours per vertex", f"{fix}, or choose smaller fanouts"))
        return problems

    def place(self, experiment: Experiment, shard: Shard, device: torch.device) -> str:
        """The rank's GPU if the option, the run and the memory of the GPU allow it, else the host.

        Raises:
            ConfigError: `device=cuda`, and the run is on the CPU.
            RunError: `device=cuda`, and the GPU has too little memory.
        """
        if device.type == "cpu" and self.device == "cuda":
            raise ConfigError(Problem("sampler.device", "cuda", "no CUDA device is visible", "set sampler.device=auto"))
        if device.type == "cpu" or self.device == "cpu" or self._keeps_on_host(experiment):
            return "cpu"
        # Topology, numbers of parallel edges, and tables of vertices. With `auto`, half of the free memory remains for
        # training. Ranks that share a GPU share its memory.
        sharing = -(-experiment.hardware.workers // max(1, torch.cuda.device_count()))
        free = torch.cuda.mem_get_info(device)[0] // sharing
        needed = (self.topology_bytes(shard) + 4 * shard.graph.num_nodes * max(1, self.threads)
                  + (4 * shard.graph.num_edges if experiment.model.options.needs.edge_identity else 0))
        told = f"sampling on the GPU needs {needed} bytes, {free} bytes are free"
        if self.device == "cuda" and needed > free:
            raise RunError(f"{told}; set sampler.device=cpu")
        if self.device == "auto" and needed > free // 2:
            return f"cpu: {told}"
        self._place = device
        self._kernel = chosen_kernel(str(getattr(experiment.model.options, "kernel", "auto")), device.type)
        return str(device)

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the graph of this rank."""
        super().setup(shard, num_layers)
        graph, hops = self.topology_of(shard), self.hops(num_layers)
        self._expansion: Expansion | DeviceExpansion = Expansion(graph, shard.needs, hops, shard.names, self.pool)
        self._compared: Expansion | None = None
        if self._place is not None:
            self._compared = self._expansion
            self._expansion = DeviceExpansion(graph, shard.needs, hops, self._place, shard.names,
                                              kernels_for(self._place, self._kernel))

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; all hops share one list of vertices."""
        streams = [_stream(key, hop) for hop in range(self._num_hops)]
        if isinstance(self._expansion, DeviceExpansion):
            blocks, ids = self._expansion.blocks(seeds, streams)
            if (host := self._compared) is not None and seeds.numel():
                self._compared = None
                assert_same(blocks, host.blocks(seeds, streams))
            return Batch(seeds, blocks, key, global_count, host_ids=ids)
        return Batch(seeds, self._expansion.blocks(seeds, streams), key, global_count)

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The draws of one hop, on the host."""
        assert isinstance(self._expansion, Expansion), "paradigms that go hop by hop sample on the host"
        return self._expansion.neighbours(frontier, hop, _stream(key, hop))


def _stream(key: BatchKey, hop: int) -> int:
    return stream(key.seed, Purpose.SAMPLE, key.epoch, key.step, key.micro, hop)
