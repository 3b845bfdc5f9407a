"""Checks of the options of offloaded training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gnnexp.components.locate import choice_of
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.paradigms.checks import block_layers, learns_weights

if TYPE_CHECKING:
    from gnnexp.paradigms.offload import Offload

Keep = Literal["cheapest", "paper", "outputs", "sums"]


def option_problems(options: Offload) -> list[Problem]:
    """Invalid options, alone and together."""
    problems = options.chunking.problems()
    if options.reorganise and not (options.dedup.inter and options.dedup.intra):
        problems.append(
            Problem(
                "reorganise",
                True,
                "puts chunks in an order for both kinds of dedup",
                "set paradigm.reorganise=false, or paradigm.dedup={inter: true, intra: true}",
            )
        )
    return problems


def check_layers(experiment: Experiment, options: Offload) -> list[Problem]:
    """Conflicts with the model: kept sums need constant weights, and a budget needs layers of known memory."""
    problems, model = [], choice_of(experiment.model)
    if options.keep == "sums" and (learns_weights(experiment) or block_layers(experiment)):
        problems.append(
            Problem(
                "paradigm.keep",
                "sums",
                f"the aggregation of {model} has learned weights: its gradient needs what was aggregated",
                "set paradigm.keep=outputs",
            )
        )
    if options.rows == "projected" and block_layers(experiment):
        problems.append(
            Problem(
                "paradigm.rows",
                "projected",
                f"layers of {model} have no projection of their own",
                "set paradigm.rows=cheapest",
            )
        )
    if options.device_memory is not None and block_layers(experiment):
        problems.append(
            Problem(
                "paradigm.device_memory",
                options.device_memory,
                f"what layers of {model} take is not known",
                "set paradigm.chunks=<number> and paradigm.device_memory=null",
            )
        )
    return problems
