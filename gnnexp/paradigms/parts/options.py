"""Options of model averaging, and what does not go with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from gnnexp.errors import Problem
from gnnexp.paradigms.checks import plain_features, vertices_only, whole_topology
from gnnexp.paradigms.parts.local_models import OptimizerState

_NAME = "model_averaging"


@dataclass(frozen=True)
class AveragingOptions:
    """See `ModelAveraging`."""

    sync_every: int
    optimizer_state: OptimizerState
    full_neighbors: bool
    local_batch_size: int | None
    memory: int | None
    reserve: int | None

    def batch_size(self, whole: int | None, parts: int) -> int | None:
        """Targets of a part's batch, of `whole` in a global one (`train.batch_size`); None: all that the part has."""
        if self.local_batch_size is not None or whole is None:
            return self.local_batch_size
        return -(-whole // parts)

    def memory_of(self, config: Mapping[str, Any]) -> int | None:
        """M: bytes of a rank; None: nobody said."""
        memory = config["hardware"].get("device_memory") if self.memory is None else self.memory
        return None if memory is None else int(memory)

    def problems(self) -> list[Problem]:
        """What no configuration can have."""
        found = []
        if self.sync_every < 1:
            found.append(Problem("paradigm.sync_every", self.sync_every, "must be 1 or more epochs",
                                 "set paradigm.sync_every=1"))
        if self.optimizer_state not in get_args(OptimizerState):
            found.append(Problem("paradigm.optimizer_state", self.optimizer_state,
                                 f"must be one of: {', '.join(get_args(OptimizerState))}",
                                 "set paradigm.optimizer_state=kept"))
        if self.local_batch_size is not None and self.local_batch_size < 1:
            found.append(Problem("paradigm.local_batch_size", self.local_batch_size, "must be 1 or more, or null",
                                 "set paradigm.local_batch_size=null"))
        if self.memory is not None and self.memory < 1:
            found.append(Problem("paradigm.memory", self.memory, "must be bytes, or null",
                                 "set paradigm.memory=null"))
        return found

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """What does not go with the rest of the resolved `config`."""
        every, train = self.sync_every, config["train"]
        problems = [*plain_features(config, _NAME), *whole_topology(config, _NAME),
                    *vertices_only(config, _NAME, "the ends of a link are in different parts")]
        if (train["eval_every"] or 0) % every:
            problems.append(Problem("train.eval_every", train["eval_every"], f"must be a multiple of {every} "
                                    "(paradigm.sync_every): between averages there is no model to evaluate",
                                    f"set train.eval_every={every}"))
        memory = self.memory_of(config)
        if self.reserve is not None and not (memory is not None and 0 <= self.reserve < memory):
            problems.append(Problem("paradigm.reserve", self.reserve, f"must be 0 or more and below the memory of a "
                                    f"rank ({memory})", "set paradigm.reserve=null, or paradigm.memory"))
        return problems
