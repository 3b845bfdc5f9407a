"""The default sampler: FastSample's fused neighbour sampling, with draws that are a pure function of their key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.options import wrong_options
from gnnexp.components.packages import missing_package
from gnnexp.components.setting import Setting
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.measure.available import available_memory
from gnnexp.ops.backends import chosen_kernel, has_nvidia_gpu_build, has_triton, is_interpreted
from gnnexp.samplers.base import Key, Topology
from gnnexp.samplers.device_expansion import DeviceExpansion
from gnnexp.samplers.device_hops import MOST_FANOUT, DeviceTopology, assert_same, hop_key, hop_keys, kernels_for
from gnnexp.samplers.expansion import Expansion, Second
from gnnexp.samplers.layerwise import LayerSampler, LayerSamplerOptions, Neighbours
from gnnexp.tiers.pinned import Use, pinned_array

SampleDevice = Literal["auto", "cpu", "cuda"]
TopologyTier = Literal["auto", "device", "uva"]
_TOPOLOGY = Use("edges", "set sampler.tier=device, or sampler.device=cpu")


@dataclass(frozen=True)
class FusedOptions(LayerSamplerOptions):
    """Uniform neighbour sampling without replacement, directly into CSC (FastSample, section 3.2, Algorithm 1).

    Attributes:
        fanouts, key, topology, threads, prefetch: see `SamplerOptions`.
        device: where batches are made: `cpu`; `cuda`, the GPU of the rank; `auto`, the GPU if the run allows it.
        tier: where a GPU that makes batches reads edges: `device`, its own memory; `uva`, pinned host memory; `auto`,
            its own memory if they fit there.
    """

    fanouts: Sequence[int]
    key: Key = "global"
    topology: Topology = "replicated"
    threads: int = 1
    prefetch: int = 2
    device: SampleDevice = "auto"
    tier: TopologyTier = "auto"

    def problems(self) -> list[Problem]:
        """Options outside of their ranges."""
        wrong = wrong_options(
            "sampler",
            (self.device in get_args(SampleDevice), "device", self.device, "must be auto, cpu or cuda", "auto"),
            (self.tier in get_args(TopologyTier), "tier", self.tier, "must be auto, device or uva", "auto"),
        )
        return [*super().problems(), *wrong]

    def check(self, setting: Setting) -> list[Problem]:
        """Conflicts of `device=cuda` and of `tier=uva` with other choices."""
        problems = self.gpu_problems(setting) if self.device == "cuda" or self.tier == "uva" else []
        return [*problems, *self.host_memory_problems(setting)] if self.tier == "uva" else problems

    def gpu_problems(self, setting: Setting) -> list[Problem]:
        """Reasons why batches cannot be made on a GPU."""
        key, value = ("sampler.device", "cuda") if self.device == "cuda" else ("sampler.tier", self.tier)
        problems, fix = [], f"set {key}=auto"
        if setting.hardware.device == "cpu":
            problems.append(Problem(key, value, "the run is on the CPU", "set hardware.device=cuda"))
        kind = type(self.make())
        if any(getattr(kind, name) is not getattr(FusedSampler, name) for name in ("sample", "sample_layer")):
            problems.append(
                Problem(key, value, f"{kind.__name__} draws with its own code, which runs on the host", fix)
            )
        if setting.sampling_on_gpu is not None:
            problems.append(Problem(key, value, setting.sampling_on_gpu.reason, fix))
        if max(self.fanouts) > MOST_FANOUT:
            problems.append(
                Problem(
                    "sampler.fanouts",
                    list(self.fanouts),
                    f"a GPU draws at most {MOST_FANOUT} neighbours per vertex",
                    f"{fix}, or choose smaller fanouts",
                )
            )
        return problems

    def host_memory_problems(self, setting: Setting) -> list[Problem]:
        """Reasons why a GPU that makes batches cannot read edges in host memory."""
        kernel, fix = setting.kernel, "set sampler.tier=auto"
        if self.device == "cpu":
            return [Problem("sampler.tier", "uva", "batches are made on the host with sampler.device=cpu", fix)]
        if setting.hardware.device == "cpu":
            return []  # said already
        if not has_triton():
            return [missing_package("sampler.tier", "uva", "triton", "sampler.tier=auto")]
        if not (is_interpreted() or has_nvidia_gpu_build()):
            return [Problem("sampler.tier", "uva", "Triton needs an NVIDIA GPU and a build of torch for it", fix)]
        if chosen_kernel(kernel, "cuda") != "triton":
            return [
                Problem(
                    "sampler.tier",
                    "uva",
                    f"kernels of torch read no host memory, and model.kernel={kernel} means torch's on a GPU",
                    "set model.kernel=triton, or sampler.tier=auto",
                )
            ]
        return []

    def needs(self, facts: GraphFacts, num_edges: int, num_parts: int, occurrence: int) -> list[Need]:
        """Memory for the topology, also that of batches that are made on a GPU. With `auto`, the ranks decide."""
        held = super().needs(facts, num_edges, num_parts, occurrence)
        is_far = self.tier == "uva"
        if self.device != "cuda" and not is_far:
            return held
        bounds = 8 * (facts.num_nodes + 1)
        edges = facts.topology_bytes - bounds + occurrence
        tables = 4 * facts.num_nodes * max(1, self.threads)
        is_whole = self.topology == "replicated"
        return [
            *held,
            Need("topology for sampling on a GPU", "device", tables + bounds + (0 if is_far else edges)),
            Need(
                "pinned edges that a machine's GPUs read",
                "host",
                (edges if is_whole else -(-edges // num_parts)) if is_far else 0,
                per_rank=not is_whole,
            ),
        ]

    def make(self) -> FusedSampler:
        """The sampler of a rank."""
        return FusedSampler(self)


class FusedSampler(LayerSampler):
    """Uniform neighbour sampling without replacement, directly into CSC (FastSample, section 3.2, Algorithm 1).

    The neighbours that vertex v draws at hop h depend only on (seed, epoch, step, micro, h, v) and on the fanout. They
    do not depend on threads, on ranks, or on other vertices of the batch. The edges of a destination are in the order
    of its draws, or in canonical order if all of them are taken.

    With `device=cuda`, blocks are made on the rank's GPU. They are the same, entry by entry. Each rank also makes its
    first batch on the host, and compares them: so no new kind of GPU, driver or Triton is wrong without a word.

    With `tier=uva`, the GPU has only the bounds of the vertices' edges. The data of edges is in pinned host memory, one
    copy for all ranks of a machine (with a partitioned topology, one for each rank). Kernels in Triton read there the
    edges that they draw.
    """

    options: FusedOptions

    def __init__(self, options: FusedOptions) -> None:
        super().__init__(options)
        self._place: torch.device | None = None
        self._kernel = "torch"
        self._pin: Callable[[Tensor], Tensor] | None = None

    def place(self, setting: Setting, shard: Shard, device: torch.device, comm: Communicator) -> str:
        """The ranks' GPUs if the option, the run and the memory of each GPU allow it, else the host on all ranks.

        Raises:
            ConfigError: `device=cuda` or `tier=uva`, and the run is on the CPU.
            RunError: `device=cuda` or `tier=uva`, and the GPU of a rank has too little memory.
        """
        demanded = "cuda" if self.options.device == "cuda" else "uva" if self.options.tier == "uva" else ""
        if device.type == "cpu" and demanded:
            key = "sampler.device" if demanded == "cuda" else "sampler.tier"
            raise ConfigError(Problem(key, demanded, "no CUDA device is visible", f"set {key}=auto"))
        if "cpu" in (setting.hardware.device, self.options.device) or self.options.gpu_problems(setting):
            return "cpu"
        tiers = ("device", "uva") if self.options.tier == "auto" else (self.options.tier,)
        # Ranks that make a batch together must do the same. So one rank without room decides for all of them.
        why_not = [self._why_not(setting, shard, device, tier) or "" for tier in tiers]
        of_ranks: Any = comm.gather_objects(why_not)
        reasons = dict(zip(tiers, (max(of_tier, key=len) for of_tier in zip(*of_ranks, strict=True)), strict=True))
        tier = next((tier for tier in tiers if not reasons[tier]), None)
        if tier is None:
            reason = reasons[tiers[0]]
            if demanded:
                raise RunError(f"{reason}; set sampler.device=cpu")
            return reason if reason == "cpu" else f"cpu: {reason}"
        self._place = device
        self._kernel = chosen_kernel(setting.kernel, device.type)
        if tier == "device":
            return str(device)
        shared = comm if self.options.topology == "replicated" else None
        self._pin = lambda values: pinned_array(
            tuple(values.shape), values.dtype, lambda array: array.copy_(values), shared, device, _TOPOLOGY
        )
        return f"{device}, which reads edges in host memory: {reasons.get('device', 'sampler.tier=uva')}"

    def _why_not(self, setting: Setting, shard: Shard, device: torch.device, tier: str) -> str | None:
        """Why the rank's GPU cannot make batches with edges in a tier; None if it can."""
        if device.type == "cpu":
            return "cpu"
        if tier == "uva" and (problems := self.options.host_memory_problems(setting)):
            return problems[0].allowed
        why_not = self._why_not_on_gpu(setting, shard, device, tier)
        return why_not or (self._why_not_on_host(setting, shard) if tier == "uva" else None)

    def _why_not_on_host(self, setting: Setting, shard: Shard) -> str | None:
        """What the pinned edges of a machine need and what is there, if that is too little; else None.

        With `auto`, half of the memory remains.
        """
        graph = self.topology_of(shard)
        needed = graph.topology_bytes - graph.indptr.nbytes + (4 * graph.num_edges if setting.edge_identity else 0)
        if self.options.topology == "partitioned":
            needed *= setting.hardware.workers
        available = available_memory()
        if needed <= (available // 2 if self.options.tier == "auto" else available):
            return None
        return f"edges in host memory need {needed} bytes, {available} bytes are available"

    def _why_not_on_gpu(self, setting: Setting, shard: Shard, device: torch.device, tier: str) -> str | None:
        """What is needed and what is free on the GPU, if that is too little; else None.

        Topology, owners, numbers of parallel edges, and tables of vertices are needed. With `tier=uva`, data of edges
        is not. With `auto`, half of the free memory remains for training. Ranks that share a GPU share its memory.
        """
        sharing = -(-setting.hardware.workers // max(1, torch.cuda.device_count()))
        free = torch.cuda.mem_get_info(device)[0] // sharing
        vertex = 4 * max(1, self.options.threads) + (0 if shard.partition is None else shard.owner.element_size())
        needed = vertex * shard.graph.num_nodes
        if tier == "uva":
            needed += self.topology_of(shard).indptr.nbytes
        else:
            needed += self.topology_bytes(shard) + (4 * shard.graph.num_edges if setting.edge_identity else 0)
        if needed <= (free // 2 if self.options.device == "auto" else free):
            return None
        return f"sampling on the GPU needs {needed} bytes, {free} bytes are free"

    def setup(self, shard: Shard, num_layers: int) -> None:
        """Store the graph of this rank."""
        super().setup(shard, num_layers)
        graph, hops = self.topology_of(shard), self.options.hops(num_layers)
        self._expansion = Expansion(graph, shard.needs, hops, shard.names, self.pool, self.spare_maps)
        self._on_device: DeviceExpansion | None = None
        self._compares = self._place is not None
        if self._place is not None:
            self.device_topology = DeviceTopology(
                graph, shard.needs, hops, self._place, shard.names, kernels_for(self._place, self._kernel), self._pin
            )
            self._on_device = DeviceExpansion(self.device_topology)

    def sample(self, seeds: Tensor, key: BatchKey, global_count: int = 0) -> Batch:
        """The blocks of one batch; all hops share one list of vertices."""
        streams = hop_keys(key, self._num_hops)
        if self._on_device is None:
            return Batch(seeds, self._expansion.blocks(seeds, streams, self.inside), key, global_count)
        blocks, ids = self._on_device.blocks(seeds, streams)
        if self._compares and seeds.numel():
            self._compares = False
            host = self._expansion.blocks(seeds, streams)
            assert_same([block.arrays() for block in blocks], [block.arrays() for block in host])
        drawn = sum(block.num_edges - block.self_loops * block.num_dst for block in blocks)
        return Batch(
            seeds,
            blocks,
            key,
            global_count,
            host_ids=ids,
            far_bytes=None if self.device_topology is None else self.device_topology.far_bytes(drawn),
        )

    def sample_layer(self, frontier: Tensor, hop: int, key: BatchKey) -> Neighbours:
        """The draws of one hop, on the host."""
        return self._expansion.neighbours(frontier, hop, hop_key(key, hop), self.inside)[0]

    def sample_placed(
        self, frontier: Tensor, hop: int, key: BatchKey, second_loop: Second
    ) -> tuple[Neighbours, tuple[int, int]]:
        """The draws of one hop, and their places."""
        if type(self).sample_layer is not FusedSampler.sample_layer:  # draws of a subclass
            return super().sample_placed(frontier, hop, key, second_loop)
        return self._expansion.neighbours(frontier, hop, hop_key(key, hop), self.inside, second_loop)
