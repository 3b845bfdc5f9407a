"""What offloaded training holds, brings and spends (HongTu, Tables 1, 3, 8 and 9, Equation 4, Figure 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction

from gnnexp.record.records import read_epochs
from gnnexp.record.runs import Run
from gnnexp.reports.kinds.rank_load import tells_redundancy
from gnnexp.reports.offload.chunk_plan import ChunkPlan, plan_of
from gnnexp.reports.offload.crossings import Breakdown, breakdown_of
from gnnexp.reports.table import Table
from gnnexp.reports.values.labels import ALWAYS, figure_name, last_of_settings

_KINDS = ("topology", "vertex", "intermediate")
_MEMORY = (*(f"{kind} MB" for kind in _KINDS), "device peak MB", "promised MB")
_PLANNED = (
    "chunks", "parts", "V", "V_ori", "V_+p2p", "V_+ru", "alpha", "shared / V", "shared %", "reused / V", "reused %",
    "both kinds save %", "foreign rows", "foreign rows, new", "host rows", "saved %", "peer rows", "cost before",
    "cost after", "order", "setup s", "order s", "setup % of 100 epochs",
)
_SECONDS = ("H2D s", "D2H s", "D2D s", "hosts s", "host add s", "compute s", "wait s", "epoch s")
_COLUMNS = (*_MEMORY, *_PLANNED, *_SECONDS)
_CAPTION = (
    "Rows: over all ranks, of one sweep over the chunks in the order that was taken. alpha: V_ori / V (Table 3). "
    "Shared: V_ori - V_+p2p, read by several ranks in a batch; reused: V_+p2p - V_+ru, held by the batch before; % of "
    "V_ori (Table 8). Both kinds save: 1 - V_+ru / V_ori, whatever this run did. Foreign: rows with another rank as "
    "home, counted, which the paper approximates by the shared ones; new: not read by the rank's chunk before. Host "
    "rows, peer rows: counted in a forward sweep of this run; saved: 1 - host rows / V_ori. Cost: Equation 4, in "
    "seconds where the order names a profile, else in rows; before: order of ranges, after: Algorithm 4. Setup: "
    "cutting, counting and ordering chunks, once (Table 9); order s is part of it. MB: 10^6 bytes; topology, vertex "
    "data and intermediate of all ranks, device peak and what was promised for chunks of the fullest rank. "
    "Intermediate: the most that tensors made by a pass take, in either tier; in memory vertex data is the ranks' "
    "feature stores, and all other rows are intermediate. Seconds: mean over ranks, median over epochs that read no "
    "features. H2D, D2H: crossings; D2D: inside collectives of vertex data; hosts: the same without inter-rank dedup, "
    "where rows go from host to host; host add: summing gradients in host memory; compute: forward + backward less "
    "these (– where crossings run beside it); the epoch also has the gradients' sum and the update. With device=cpu "
    "the device tier is emulated in RAM: crossings are copies within RAM and their seconds are no PCIe's. –: not "
    "told."
)


@dataclass(frozen=True)
class Offloaded:
    """A finished full-graph run, offloaded or to be compared with those.

    Attributes:
        labels: what tells its setting from those beside it, by column.
        plan: None of training in memory, and where it was not recorded.
        seconds: of an epoch.
        memory: bytes over all ranks, by kind; those that were recorded.
        device_peak_bytes: of the fullest rank.
        emulated: whether the device tier was RAM.
    """

    labels: Mapping[str, str]
    plan: ChunkPlan | None
    seconds: Breakdown
    memory: Mapping[str, int]
    device_peak_bytes: float | None
    emulated: bool

    def name(self, others: Sequence[Offloaded], but: Sequence[str] = ()) -> str:
        """For a figure: the system, and those labels that differ from those of `others`, `but` for some."""
        return figure_name(self.labels, [other.labels for other in others], but)


def find_offloaded(runs: Iterable[Run]) -> list[Offloaded]:
    """Finished full-graph runs, the last of each setting, in order of first appearance."""
    chosen = [run for run in runs if run.status == "finished" and _is_full_graph(run)]
    return [_offloaded(labels, run) for labels, run in last_of_settings(chosen)]


def _is_full_graph(run: Run) -> bool:
    return run.value("paradigm") == "offload" or plan_of(run) is not None or tells_redundancy(run)


def _offloaded(labels: Mapping[str, str], run: Run) -> Offloaded:
    lines = read_epochs(run.path)
    ranks = [rank.get("memory", {}) for rank in lines[-1].get("ranks", ())] if lines else []
    memory = {kind: sum(int(rank[f"{kind}_bytes"]) for rank in ranks) for kind in _KINDS
              if ranks and all(f"{kind}_bytes" in rank for rank in ranks)}
    peak = run.epochs[-1].get("memory/device_peak_bytes") if run.epochs else None
    emulated = run.provenance.get("chosen", {}).get("device") == "cpu"
    return Offloaded(labels, plan_of(run), breakdown_of(run), memory, peak, emulated)


# --- the table -------------------------------------------------------------------------------------------------------
def make_table(runs: Sequence[Run]) -> Table:
    """One row per setting."""
    found = find_offloaded(runs)
    rows = [(*one.labels.values(), *_cells(one)) for one in found]
    return Table((*(found[0].labels if found else ALWAYS), *_COLUMNS), tuple(rows), _caption(runs, len(found)))


def _cells(one: Offloaded) -> tuple[str, ...]:
    plan = one.plan
    held = [one.memory.get(kind) for kind in _KINDS]
    megabytes = [*held, one.device_peak_bytes, plan.bound_bytes if plan else None]
    planned = ("–",) * len(_PLANNED) if plan is None else _plan_cells(plan, one.seconds.epoch)
    return (*(_cell(value, "{:.3f}", 1e-6) for value in megabytes), *planned,
            *(_cell(value, "{:.4f}") for value in astuple(one.seconds)))


def _plan_cells(plan: ChunkPlan, epoch_s: float | None) -> tuple[str, ...]:
    rows, original = plan.rows, plan.rows["original"]
    saved = None if plan.host_rows is None else original - plan.host_rows
    return (
        str(plan.chunks), str(plan.parts), _cell(plan.vertices, "{:.0f}"),
        *(str(rows[name]) for name in ("original", "inter", "both")), _cell(plan.alpha, "{:.3f}"),
        *(cell for part in (plan.shared, plan.reused)
          for cell in (_cell(_share(part, plan.vertices), "{:.3f}"), _percent(part, original, 1))),
        _percent(original - rows["both"], original, 1),
        *(_cell(rows.get(name), "{:.0f}") for name in ("foreign", "foreign_new")),
        _cell(plan.host_rows, "{:.10g}"), _percent(saved, original, 1), _cell(plan.peer_rows, "{:.10g}"),
        _cell(plan.cost_before, "{:.6g}"), _cell(plan.cost_after, "{:.6g}"), plan.order or "–",
        _cell(plan.setup_s, "{:.4f}"), _cell(plan.order_s, "{:.4f}"),
        _percent(plan.setup_s, None if epoch_s is None else 100 * epoch_s, 2),
    )


def _share(part: float | Fraction | None, whole: float | None) -> float | None:
    return None if part is None or not whole else float(part) / whole


def _percent(part: float | Fraction | None, whole: float | None, digits: int) -> str:
    return _cell(_share(part, whole), f"{{:.{digits}f}}", 100)


def _cell(value: float | Fraction | None, form: str, factor: float = 1) -> str:
    return "–" if value is None else form.format(float(value) * factor)


def _caption(runs: Sequence[Run], num_shown: int) -> str:
    finished = [run for run in runs if run.status == "finished"]
    full = [run for run in finished if _is_full_graph(run)]
    unplanned = sum(run.value("paradigm") == "offload" and plan_of(run) is None for run in full)
    left_out = ((len(runs) - len(finished), "failed"), (len(finished) - len(full), "of mini-batches"),
                (len(full) - num_shown, "repeated later"))
    notes = [f"Left out: {count} runs {why}." for count, why in left_out if count]
    return " ".join([_CAPTION, *([f"Offloaded without a recorded plan: {unplanned} runs."] if unplanned else []),
                     *notes])
