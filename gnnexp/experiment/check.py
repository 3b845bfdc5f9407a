"""Checks of an experiment: value ranges, conflicts between choices, and what does not fit the prepared graph.

Each `…_problems` returns all its problems. A `…_note` refuses nothing: a run says it in its first lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gnnexp.components.locate import target_of
from gnnexp.components.schema import MOST_COUNTED, WARM_UP_STEPS, HardwareConfig, TrainConfig
from gnnexp.errors import Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import schedule_length
from gnnexp.measure.merit import lower_is_better

if TYPE_CHECKING:  # they import torch and numba, which reports and the composition do not need
    from gnnexp.components.facts import GraphFacts
    from gnnexp.graph.graph import Graph
    from gnnexp.models.model import ModelOptions
    from gnnexp.samplers.base import SamplerOptions

# A fix with more fanouts than this would not be readable.
_MOST_SHOWN = 20
# The longest timeout, 30 years: the system's clocks cannot hold more than some centuries.
LONGEST_TIMEOUT_S = 10**9
MOST_THREADS = 1 << 15  # that a process may start
_MOST_WHOLE = (1 << 63) - 1  # the largest signed integer of 64 bits

# Key, whether a value is allowed, what is allowed, and a right override.
Rule = tuple[str, Callable[[Any], bool], str, str]

_RULES: tuple[Rule, ...] = (
    ("train.epochs", lambda v: v >= 1, "must be at least 1", "train.epochs=10"),
    (
        "train.batch_size",
        lambda v: v is None or v >= 1,
        "must be at least 1, or null for all training vertices",
        "train.batch_size=1024",
    ),
    *(
        (f"train.{name}", lambda v: v is None or v >= 1, "must be at least 1, or null", f"train.{name}=null")
        for name in ("steps_per_epoch", "patience")
    ),
    (
        "train.stop_below",
        lambda v: v is None or all(one is None or abs(one) < math.inf for one in v),
        "must be a list of finite numbers and nulls, one for each epoch, or null",
        "train.stop_below=[null,0.5]",
    ),
    (
        "train.clip_norm",
        lambda v: v is None or 0 < v < math.inf,
        "must be positive and finite, or null",
        "train.clip_norm=null",
    ),
    (
        "train.eval_every",
        lambda v: v is None or v >= 0,
        "must be 0 (only after the last epoch), more, or null (never)",
        "train.eval_every=1",
    ),
    ("train.eval_memory", lambda v: v >= 1, "must be a positive number of bytes", "train.eval_memory=4294967296"),
    ("train.checkpoint_every", lambda v: v >= 0, "must be 0 (only after a signal) or more", "train.checkpoint_every=1"),
    ("train.checkpoints_kept", lambda v: v >= 1, "must be at least 1", "train.checkpoints_kept=2"),
    *(
        (
            f"hardware.{name}",
            lambda v: 1 <= v <= MOST_COUNTED,
            f"must be at least 1, and at most {MOST_COUNTED:,}",
            f"hardware.{name}={usual}",
        )
        for name, usual in (("nodes", 1), ("workers", 2))
    ),
    (
        "hardware.threads",
        lambda v: 0 <= v <= MOST_THREADS,
        f"must be 0 (cores / workers) or more, up to {MOST_THREADS}",
        "hardware.threads=0",
    ),
    (
        "hardware.device_memory",
        lambda v: v is None or v >= 1,
        "must be a positive number of bytes, or null",
        "hardware.device_memory=null",
    ),
    (
        "hardware.timeout_s",
        lambda v: 0 < v <= LONGEST_TIMEOUT_S,
        f"must be positive, and at most {LONGEST_TIMEOUT_S:,} s",
        "hardware.timeout_s=300",
    ),
    (
        "hardware.throttle",
        lambda v: v is None or 0 < v < math.inf,
        "must be positive bytes per second, or null",
        "hardware.throttle=null",
    ),
    (
        "hardware.throttle_h2d",
        lambda v: v is None or 0 < v < math.inf,
        "must be positive bytes per second, or null",
        "hardware.throttle_h2d=null",
    ),
    ("hardware.max_restarts", lambda v: v >= 0, "must be 0 or more", "hardware.max_restarts=0"),
    *(
        (
            f"hardware.{name}",
            lambda v: v is None or 0 < v < math.inf,
            "must be positive and finite, or null",
            f"hardware.{name}=null",
        )
        for name in ("flops", "flops_tf32", "gather", "l2", "stream", "sampling", "host_memory")
    ),
    *(
        (
            f"hardware.{name}",
            lambda v: v is None or 0 <= v < math.inf,
            "must be 0 or positive and finite, or null",
            f"hardware.{name}=null",
        )
        for name in ("latency", "step_s", "launch_s")
    ),
)


def range_problems(train: TrainConfig, hardware: HardwareConfig) -> list[Problem]:
    """Problems of values outside their ranges."""
    problems = []
    for key, holds, allowed, fix in _RULES:
        group, _, name = key.partition(".")
        value = getattr(train if group == "train" else hardware, name)
        if type(value) is int and value > _MOST_WHOLE:
            problems.append(
                Problem(key, f"{value.bit_length()} bits", f"must be a whole number of at most {_MOST_WHOLE:,}", fix)
            )
        elif not holds(value):
            problems.append(Problem(key, value, allowed, fix))
    never = "null" if train.eval_every is None else "0"
    problems += [
        Problem(
            f"train.{name}",
            value,
            f"needs a validation metric after each epoch, but train.eval_every={never} gives none",
            "set train.eval_every=1",
        )
        for name, value in (("patience", train.patience), ("stop_below", train.stop_below))
        if value is not None and not train.eval_every
    ]
    problems += [
        Problem(
            f"train.{name}",
            value,
            "rounds float32 numbers, and train.dtype is float64",
            f"set train.{name}=float32, or train.dtype=float32",
        )
        for name, value in (("matmul", train.matmul), ("activations", train.activations))
        if value != "float32" and train.dtype == "float64"
    ]
    links = {} if hardware.links is None else vars(hardware.links)
    return problems + [
        Problem(
            f"hardware.links.{name}",
            value,
            "must be positive bytes per second and finite, or null",
            f"hardware.links.{name}=null",
        )
        for name, value in links.items()
        if value is not None and not 0 < value < math.inf
    ]


def fanout_problems(sampler: SamplerOptions, model: ModelOptions) -> list[Problem]:
    """A sampler with fanouts must have one fanout per layer."""
    fanouts, layers = sampler.fanouts, model.layers
    if fanouts is None or layers < 1 or len(fanouts) == layers:
        return []
    given, fix = list(fanouts), f"model.layers={max(1, len(fanouts))}"
    if layers <= _MOST_SHOWN:
        fitting = (given + given[-1:] * layers)[:layers] if given else [10] * layers
        fix = f"sampler.fanouts={str(fitting).replace(' ', '')}, or {fix}"
    return [Problem("sampler.fanouts", given, f"needs one fanout per layer: model.layers={layers}", fix)]


def choice_problems(experiment: Experiment) -> list[Problem]:
    """Conflicts between choices that are each right."""
    setting = experiment.setting
    return [
        *experiment.model.check(setting),
        *experiment.sampler.check(setting),
        *experiment.feature_store.check(setting),
        *experiment.paradigm.check(experiment),
        *experiment.partitioner.check(setting),
        *experiment.launcher.check(setting),
        *_trace_problems(experiment),
        *host_link_problems(experiment.hardware, experiment.hardware.device),
        *_stop_below_problems(experiment),
        *(_capture_problems(experiment) if experiment.train.cuda_graph else ()),
        *(_counting_problems(experiment) if experiment.train.count_only else ()),
    ]


def host_link_problems(hardware: HardwareConfig, device: str) -> list[Problem]:
    """Conflicts of a throttled link to the host with a device that has a real one. `device`: its kind."""
    if hardware.throttle_h2d is None or device != "cuda":
        return []
    return [
        Problem(
            "hardware.throttle_h2d",
            hardware.throttle_h2d,
            "slows down an emulated device tier, and a GPU has a link of its own",
            "set hardware.throttle_h2d=null, or hardware.device=cpu",
        )
    ]


def _stop_below_problems(experiment: Experiment) -> list[Problem]:
    """`train.stop_below` needs a metric of which higher is better."""
    limits = experiment.train.stop_below
    if limits is None or not lower_is_better(metric := experiment.task.usual_metric):
        return []
    return [Problem("train.stop_below", list(limits), f"a lower {metric} is better", "set task.metric=r2")]


def _capture_problems(experiment: Experiment) -> list[Problem]:
    """What `train.cuda_graph` needs. A CUDA graph repeats one step, and the host waits for nothing in it.

    Where nothing refuses the capture, an epoch is one step, so `WARM_UP_STEPS` also counts epochs.
    """
    train, store, plain = experiment.train, experiment.feature_store, "set train.cuda_graph=false"
    no_gpu = Refusal("needs a GPU, and hardware.device=cpu has none") if experiment.hardware.device == "cpu" else None
    refusals = (no_gpu, experiment.paradigm.refuses_capture(experiment))
    conflicts = (
        (
            experiment.measure != "free",
            "measure",
            experiment.measure,
            "the host waits at boundaries of phases, and train.cuda_graph captures no wait",
            f"set measure=free, or {plain}",
        ),
        (
            experiment.hardware.throttle is not None,
            "hardware.throttle",
            experiment.hardware.throttle,
            "the host waits in exchanges, and train.cuda_graph captures no wait",
            f"set hardware.throttle=null, or {plain}",
        ),
        (
            experiment.task.pairs,
            "task",
            target_of(experiment.task),
            "every step has other links, and train.cuda_graph repeats one step",
            plain,
        ),
        (
            store.trained_columns is not None,
            "feature_store",
            target_of(store),
            "trained rows are read again in every step, and train.cuda_graph repeats one step",
            plain,
        ),
        (
            train.epochs <= WARM_UP_STEPS,
            "train.epochs",
            train.epochs,
            f"train.cuda_graph captures epoch {WARM_UP_STEPS}, and the last epoch has the number {train.epochs - 1}",
            f"set train.epochs={WARM_UP_STEPS + 1}, or {plain}",
        ),
        (
            experiment.trace is not None and experiment.trace <= WARM_UP_STEPS,
            "trace",
            experiment.trace,
            f"train.cuda_graph replays epochs after epoch {WARM_UP_STEPS}",
            f"set trace={WARM_UP_STEPS + 1}, or {plain}",
        ),
    )
    return [
        *(Problem("train.cuda_graph", True, refusal.reason, plain) for refusal in refusals if refusal is not None),
        *(Problem(*problem) for is_conflict, *problem in conflicts if is_conflict),
    ]


def _counting_problems(experiment: Experiment) -> list[Problem]:
    """What `train.count_only` needs: ranks on the host, and nothing that is made of values."""
    train, plain = experiment.train, "set train.count_only=false"
    conflicts = (
        (
            experiment.hardware.device == "cuda",
            "hardware.device",
            "cuda",
            "virtual ranks are on the host, and train.count_only counts what they do there",
            "set hardware.device=cpu",
        ),
        (experiment.trace is not None, "trace", experiment.trace, "nothing is computed that could be traced", plain),
        (
            experiment.task.pairs,
            "task",
            target_of(experiment.task),
            "outputs that links read have values on some ranks only, and train.count_only does not count them yet",
            plain,
        ),
        (
            experiment.feature_store.trained_columns is not None,
            "feature_store",
            target_of(experiment.feature_store),
            "rows that are trained take part in steps that train.count_only does not make",
            plain,
        ),
        *(
            (
                getattr(train, name) is not None,
                f"train.{name}",
                getattr(train, name),
                "nothing is evaluated with train.count_only",
                f"set train.{name}=null",
            )
            for name in ("patience", "stop_below")
        ),
    )
    return [Problem(*problem) for is_conflict, *problem in conflicts if is_conflict]


def _trace_problems(experiment: Experiment) -> list[Problem]:
    trace, epochs = experiment.trace, experiment.train.epochs
    if trace is None or trace < epochs:
        return []
    return [
        Problem(
            "trace",
            trace,
            f"must be below train.epochs={epochs}: the last epoch has the number {epochs - 1}",
            f"set trace={epochs - 1}" if epochs > 1 else "set train.epochs=2 and trace=1",
        )
    ]


def graph_problems(experiment: Experiment, graph: Graph, facts: GraphFacts) -> list[Problem]:
    """Conflicts with the prepared data: too many workers, nothing to train on, a metric that does not fit labels."""
    hardware, ranks, problems, num_train = experiment.hardware, experiment.num_ranks, [], facts.num_train
    if 0 < num_train < ranks and not facts.links:
        problems.append(
            Problem(
                "hardware.workers",
                hardware.workers,
                f"more ranks ({ranks}) than training vertices ({num_train})",
                f"hardware.workers={max(1, num_train // hardware.nodes)}",
            )
        )
    if not facts.has_features:
        problems.append(
            Problem(
                "dataset", graph.name, "has no vertex features", "choose feature_store=embedding, or another dataset"
            )
        )
    if experiment.train.cuda_graph and facts.sparse:
        problems.append(
            Problem(
                "train.cuda_graph",
                True,
                "the host reads sizes of sparse rows in every step",
                "set dataset.sparse=false, or train.cuda_graph=false",
            )
        )
    return [
        *problems,
        *schedule_problems(experiment, facts),
        *experiment.task.check_data(graph),
        *experiment.feature_store.check_data(experiment.setting, facts),
        *experiment.model.check_data(experiment.setting, facts),
        *experiment.paradigm.plan(experiment, facts).problems,
    ]


def split_notes(experiment: Experiment, graph: Graph) -> list[str]:
    """What the first lines of a run say about its split."""
    return [note for note in (validation_note(experiment, graph), unseen_note(experiment, graph)) if note]


def unseen_note(experiment: Experiment, graph: Graph) -> str | None:
    """How many classes have no training vertex, so that no model can learn them; None if each class has one."""
    labels, splits = graph.labels, graph.splits
    if experiment.task.pairs or labels is None or graph.multilabel or graph.real_labels:
        return None
    seen = labels.new_zeros(graph.num_classes).bool()
    known = labels[splits.train].long()
    seen[known[known >= 0]] = True
    unseen = [int((~seen[of[of >= 0]]).sum()) for of in (labels[ids].long() for ids in (splits.val, splits.test))]
    if not any(unseen):
        return None
    return (
        f"{int((~seen).sum())} of {graph.num_classes} classes have no training vertex: no prediction of their "
        f"{unseen[0]:,} validation and {unseen[1]:,} test vertices can be right"
    )


def validation_note(experiment: Experiment, graph: Graph) -> str | None:
    """What a run without validation examples does instead of choosing its best epoch; None if it has some."""
    pairs = experiment.task.pairs
    names = ("valid", "test") if pairs else ("val", "test")
    examples = [graph.links.get(name) if pairs else getattr(graph.splits, name) for name in names]
    has_valid, has_test = (of_split is not None and of_split.shape[0] > 0 for of_split in examples)
    if has_valid or experiment.train.eval_every is None:
        return None
    what = "links" if pairs else "vertices"
    return (
        f"there are no validation {what}: the last evaluated epoch counts as the best one"
        if has_test
        else f"there are no validation and no test {what}: no epoch is evaluated"
    )


def schedule_problems(experiment: Experiment, facts: GraphFacts) -> list[Problem]:
    """A schedule of a fixed length must last until the end of the run."""
    train, schedule = experiment.train, experiment.schedule
    length = None if schedule is None else schedule_length(experiment.optimizer, schedule)
    if schedule is None or length is None:
        return []
    examples = (facts.num_links or 0) if experiment.task.pairs else facts.num_train
    batches = math.ceil(examples / max(1, train.batch_size or examples))
    steps = train.epochs * (1 if schedule.interval == "epoch" else min(batches, train.steps_per_epoch or batches))
    if steps <= length:
        return []
    return [
        Problem(
            "scheduler.total_steps",
            length,
            f"the run has {steps} steps of the schedule, after each {schedule.interval}",
            f"set scheduler.total_steps={steps}",
        )
    ]
