"""Descriptions of runs and reports for a store: the names, tags, parameters and texts that a dashboard shows."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from gnnexp.trackers.delivery import ReportRecord, RunRecord, flatten
from gnnexp.trackers.figures import main_figures, reported_merit
from gnnexp.trackers.view import NOTE_TAG

# Tag names that MLflow defines.
_USER_TAG, _SOURCE_TAG, _COMMIT_TAG = "mlflow.user", "mlflow.source.name", "mlflow.source.git.commit"
_GROUPS = ("model", "paradigm", "partitioner", "sampler", "feature_store", "hardware", "task")
# All names of tags that a run or a report may have from us, without those of MLflow and `gnnexp.*`.
OWN_TAGS = frozenset(
    (
        *_GROUPS,
        "kind",
        "case",
        "fastest",
        "dataset",
        "system",
        "ranks",
        "workers",
        "seed",
        "code_version",
        "run_dir",
        "status",
        "sweep",
        "ended",
        "exact",
        "approximates",
        "reason",
        "host",
        "cpu",
        "gpu",
        "device",
        "backend",
        "torch",
    )
)
_MOST_CHARACTERS = 5000  # most characters of a reason in a tag: MLflow accepts 8000
LONGEST_KEY = 250  # of a tag
LONGEST_NAME = 250  # of a run: MLflow's tables have no more characters
_SEED = re.compile(r"(^| )\+*seed=\S*")
# A word of a case's label: a dotted key and a value, which may have spaces between quotes or brackets.
_WORD = re.compile(r"\+*(?P<key>[\w./@]+)=(?P<value>(?:'[^']*'|\"[^\"]*\"|\[[^]]*]|\{[^}]*}|[^\s'\"\[{])*)")
_PLAIN = re.compile(r"[\d.e+-]+|null|none|true|false|", re.IGNORECASE)  # values that say nothing without their key
# The number of a case in the name of its run directory.
_CASE_NUMBER = re.compile(r"_\d\d-\d\d-\d\d-\d{6}-(\d{3,})-")
# Colours that differ also for colour-blind readers, then further ones. MLflow's own choice gives two runs one colour.
_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#332288",
    "#882255",
    "#44aa99",
    "#999933",
    "#aa4499",
    "#666666",
)
_COLOUR_TAG = "mlflow.runColor"


def dataset_name(record: RunRecord) -> str:
    """The dataset's own name, such as `cora`, or the name of the choice."""
    named = record.job["config"]["dataset"].get("name")
    return str(named or _choices(record).get("dataset"))


def num_ranks(record: RunRecord) -> int:
    """The number of processes that train."""
    hardware = record.job["config"]["hardware"]
    return int(hardware.get("nodes", 1)) * int(hardware.get("workers", 1))


def system_name(record: RunRecord) -> str:
    """The name of the preset, or of the paradigm for a run without a preset."""
    return str(record.job["config"].get("system") or _choices(record).get("paradigm"))


def _choices(record: RunRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = record.job["provenance"].get("choices", {})
    return found


def run_name(record: RunRecord) -> str:
    """The name of a run, after the user's own name for it, if there is one.

    A run of a sweep is named by what distinguishes its case: `gsplit lr=0.1`, and `seed 3` if the sweep has several
    seeds. Other runs, and those of a sweep over seeds only, have the name `gsplit digits sage, 4 ranks, seed 0`.
    """
    name = _name_without_seed(record)
    seeds = not _short(_case(record), dataset_name(record)) or _SEED.search(_label(record))
    seed = f", seed {record.job['config'].get('seed', 0)}" if seeds else ""
    room = LONGEST_NAME - len(seed)
    return (name if len(name) <= room else f"{name[: room - 1]}…") + seed


def _name_without_seed(record: RunRecord) -> str:
    words = (record.job["config"].get("name"), _short(_case(record), dataset_name(record)) or _usual_name(record))
    return " ".join(str(word) for word in words if word)


def _label(record: RunRecord) -> str:
    return str(record.job["provenance"].get("label") or "")


def _case(record: RunRecord) -> str:
    """What distinguishes the run from the others of its sweep, without the seed; empty if there is nothing."""
    label = _SEED.sub("", _label(record)).strip()
    return "" if label == "run" else label


def _short(case: str, dataset: str) -> str:
    """A case in few letters, since lists and charts cut long names: `system=p3 train.lr=0.1` is `p3 lr=0.1`.

    A choice of data that reads files (`dataset=planetoid`) has the name of the `dataset` there.
    """
    words = [(match["key"], match["value"]) for match in _WORD.finditer(case)]
    if not words or " ".join(f"{key}={value}" for key, value in words) != re.sub(r"(^| )\++", r"\1", case):
        return case
    last = Counter(key.rpartition(".")[2] for key, _ in words)
    words = [(key, dataset if key == "dataset" else value) for key, value in words]
    return " ".join(
        value
        if "." not in key and not _PLAIN.fullmatch(value)
        else f"{key if last[key.rpartition('.')[2]] > 1 else key.rpartition('.')[2]}={value}"
        for key, value in words
    )


def _usual_name(record: RunRecord) -> str:
    words = (system_name(record), dataset_name(record), _choices(record).get("model"))
    ranks = num_ranks(record)
    return " ".join(str(word) for word in words if word) + f", {ranks} rank{'s' if ranks > 1 else ''}"


def make_params(record: RunRecord) -> dict[str, str]:
    """The configuration by dotted keys, and the main choices that distinguish runs, without a prefix.

    Keys without a value (null) are left out. So are the names of gnnexp's own classes, because the choices name them.
    `case` is what distinguishes the run from the others of its sweep.
    """
    choices = _choices(record)
    top = {group: str(choices[group]) for group in _GROUPS if group in choices}
    keys = {
        key: value
        for key, value in flatten(record.job["config"]).items()
        if not (key.endswith("_target_") and str(value).startswith("gnnexp."))
    }
    case = {"case": _case(record)} if _case(record) else {}
    return {
        **keys,
        **top,
        **case,
        "dataset": dataset_name(record),
        "system": system_name(record),
        "ranks": str(num_ranks(record)),
    }


def make_tags(run_dir: Path, record: RunRecord) -> dict[str, str]:
    """The tags by which the dashboard finds and groups runs, known from the start."""
    provenance, config = record.job["provenance"], record.job["config"]
    choices = _choices(record)
    version = str(provenance.get("code_version"))
    tags = {
        **{group: str(choices[group]) for group in _GROUPS if group in choices},
        "kind": "run",
        "case": _name_without_seed(record),
        "dataset": dataset_name(record),
        "system": system_name(record),
        "ranks": str(num_ranks(record)),
        "workers": str(config["hardware"].get("workers", 1)),
        "seed": str(config.get("seed")),
        "code_version": version,
        "run_dir": f"{platform.node()}:{run_dir}",
        "status": "running",
        **machine_tags(record),
        NOTE_TAG: make_note(run_dir, record),
        _USER_TAG: _user(),
        _SOURCE_TAG: "gnnexp",
        _COLOUR_TAG: _colour(run_dir, record),
    }
    if provenance.get("sweep"):
        tags["sweep"] = str(provenance["sweep"])
    if commit := version.partition("+")[2].removesuffix("-dirty"):
        tags[_COMMIT_TAG] = commit
    return tags


def _colour(run_dir: Path, record: RunRecord) -> str:
    """Cases of a sweep get colours in turn. Other runs get one by their identity."""
    found = _CASE_NUMBER.search(run_dir.name)
    number = int(found[1]) if found else crc32(str(record.job["provenance"].get("uid")).encode())
    return _COLOURS[number % len(_COLOURS)]


def machine_tags(record: RunRecord) -> dict[str, str]:
    """The machine of a run, on which its seconds depend: host, processor, graphics cards, device, backend, torch.

    At first it is the machine that launched the run. When the run has ended, it is that of its ranks.
    """
    nodes, result = _nodes(record), record.result or {}
    chosen = (result.get("provenance") or {}).get("chosen") or {}
    cards = Counter(str(card) for node in nodes for card in node.get("gpus", ()))
    wished = str(record.job["config"]["hardware"].get("device") or "auto")
    processors = [
        str(node["cpu"]) + (f" ({node['cores']} cores)" if node.get("cores") else "")
        for node in nodes
        if node.get("cpu")
    ]
    tags = {
        "host": _each(nodes, "host"),
        "cpu": ", ".join(dict.fromkeys(processors)),
        "torch": _each(nodes, "torch"),
        "gpu": ", ".join(f"{count} x {name}" if count > 1 else name for name, count in cards.items()) or "none",
        "device": str(chosen.get("device") or ("" if wished == "auto" else wished)),
        "backend": str(chosen.get("comm_backend") or ""),
    }
    return {name: value[:_MOST_CHARACTERS] for name, value in tags.items() if value and nodes}


def _nodes(record: RunRecord) -> Sequence[Mapping[str, Any]]:
    """The nodes of a run's ranks; before its end, and in old records, the machine on which a local run was launched."""
    if found := (record.result or {}).get("nodes"):
        return list(found)
    provenance = record.job["provenance"]
    launched, libraries = provenance.get("hardware") or {}, provenance.get("libraries") or {}
    return [{**launched, "torch": libraries.get("torch")}] if launched and is_local(record) else []


def is_local(record: RunRecord) -> bool:
    """Whether the ranks of a run are on the machine that launches it."""
    launcher = record.job["config"]["hardware"].get("launcher") or {}
    return str(launcher.get("_target_", "")).endswith(".LocalLauncher")


def _each(nodes: Sequence[Mapping[str, Any]], key: str) -> str:
    """The value of all nodes, or the different values."""
    return ", ".join(dict.fromkeys(str(node[key]) for node in nodes if node.get(key)))


def parent_uid(record: RunRecord) -> str:
    """Identifies the sweep of a run; empty without a sweep. The sweep of an imported run was made elsewhere."""
    provenance = record.job["provenance"]
    return "" if "imported" in provenance else str(provenance.get("sweep_uid") or "")


def parent_tags(record: RunRecord) -> dict[str, str]:
    """The tags of a run's sweep until its report is delivered."""
    sweep = str(record.job["provenance"].get("sweep"))
    note = (
        f"The runs of this sweep are below. The report follows when the sweep ends, or with\n\n"
        f"```\ngnnexp report {sweep}\n```"
    )
    return _sweep_tags(sweep, "running", note)


def _user() -> str:
    with suppress(KeyError, OSError):  # a container's user may have no name
        return getpass.getuser()
    return str(os.getuid())


def end_tags(run_dir: Path, record: RunRecord) -> dict[str, str]:
    """The tags known at the end: how and why the run ended, its machine, and whether it trained exactly."""
    assert record.result is not None
    tags = {"status": str(record.result["status"]), NOTE_TAG: make_note(run_dir, record), **machine_tags(record)}
    facts = record.result.get("paradigm") or {}
    if "exact" in facts:
        tags["exact"] = str(bool(facts["exact"])).lower()
    if facts.get("approximates"):
        tags["approximates"] = str(facts["approximates"])
    if record.result.get("ended"):
        tags["ended"] = str(record.result["ended"])
    if record.result.get("reason"):
        tags["reason"] = str(record.result["reason"])[:_MOST_CHARACTERS]
    return tags


def make_note(run_dir: Path, record: RunRecord) -> str:
    """The run in Markdown: how it ended, its main figures, and the command that reproduces it."""
    provenance = record.job["provenance"]
    # MLflow's page shows only the first lines.
    first = " ".join(filter(None, ["" if record.result is None else _ending(record), _machine(record)]))
    parts = [first, "" if record.result is None else _figures_table(record)]
    return "\n\n".join(
        filter(
            None,
            [
                *parts,
                f"Reproduce it with\n\n```\n{provenance.get('reproduce', '')}\n```",
                f"gnnexp {provenance.get('code_version')}, run directory `{run_dir}`.",
            ],
        )
    )


def _ending(record: RunRecord) -> str:
    assert record.result is not None
    if record.result["status"] != "finished":
        return f"**{record.result['status']}**: {record.result.get('reason') or 'unknown reason'}"
    facts = record.result.get("paradigm") or {}
    if facts.get("exact", True):
        return "Exact: the gradients of serial training on the same batches." if facts else ""
    return f"Not exact: {facts.get('approximates')}."


def _machine(record: RunRecord) -> str:
    tags = machine_tags(record)
    words = [
        tags.get("cpu"),
        "" if tags.get("gpu") == "none" else tags.get("gpu"),
        *(f"{name} {tags[name]}" for name in ("device", "backend", "torch") if name in tags),
    ]
    return f"Made on {tags['host']}: {', '.join(word for word in words if word)}." if "host" in tags else ""


def _figures_table(record: RunRecord) -> str:
    """The main figures in readable units."""
    figures = main_figures(record)
    units = {
        "test": (100, f"{reported_merit(record)[0]} %", ".2f"),
        "epoch_s": (1, "epoch s (median)", ".4f"),
        "sent_MB": (1, "sent MB per epoch", ".3f"),
        "host_MB": (1, "host peak MB", ".1f"),
        "device_MB": (1, "device peak MB", ".1f"),
    }
    shown = [
        (label, f"{factor * figures[f'main/{name}']:{form}}")
        for name, (factor, label, form) in units.items()
        if f"main/{name}" in figures
    ]
    if not shown:
        return ""
    head, row = zip(*shown, strict=True)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ("---:",) * len(head), row))


def report_tags(record: ReportRecord) -> dict[str, str]:
    """The tags of a sweep's report, which is a run of its own in the store: the parent of the sweep's runs."""
    verdicts = {tag_key(name): text for name, text in record.verdicts.items()}
    return {**verdicts, **_sweep_tags(record.sweep, record.status, record.note), "code_version": record.code_version}


def tag_key(name: str) -> str:
    """`name` as a key that MLflow takes: letters, digits, `_`, `-`, `.`, `/` and blanks."""
    return re.sub(r"[^\w\-./ ]+", "", name, flags=re.ASCII).strip()[:LONGEST_KEY]


def _sweep_tags(sweep: str, status: str, note: str) -> dict[str, str]:
    return {
        "kind": "sweep",
        "sweep": sweep,
        "gnnexp.sweep": sweep,
        "status": status,
        NOTE_TAG: note,
        _USER_TAG: _user(),
        _SOURCE_TAG: "gnnexp",
    }
