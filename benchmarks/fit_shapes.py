"""Fit shapes of graphs to the counts that GSplit's Table 1 prints, with the mean-field formulas: no graph is made.

    python benchmarks/fit_shapes.py            all fits: results/shape_fits.csv, docs/fits.md
    python benchmarks/fit_shapes.py --check    error if the file's fits are no best fits (seconds)

Published counts come from sweeps/gsplit/published.csv, public statistics from shape_statistics.csv. A fit has a ratio
(fitted over published) for each count, and says which counts it used. The seed of everything is fixed: least squares
from several fixed starts.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from gnnexp.datasets.generated.degrees import DegreeModel, location
from gnnexp.datasets.generated.mean_field import Communities, Levels, VertexClasses, expected_counts
from gnnexp.errors import DataError, GnnexpError, Problem

HERE = Path(__file__).resolve().parent
PUBLISHED = HERE.parent / "sweeps" / "gsplit" / "published.csv"
STATISTICS = HERE / "shape_statistics.csv"
RESULTS = HERE / "results" / "shape_fits.csv"
NAMES = ("mini edges", "mini features", "micro edges", "micro features")
DIRECTED = "papers100m"
GRAPHS = ("orkut", "friendster", "papers100m")
# Section 6.1 names 1024 for the global batch. The other reading: 1024 for each of the four GPUs.
BATCHES = (4096, 1024)
FANOUTS = (15, 15, 15)
LOCAL_SIZE = 128
# The community of the training vertices (arXiv) in papers100M. OGB has 1.2 million of them, all in arXiv.
COMMUNITY = 1_500_000
# Share of the citations that stay in their community, where a fit does not choose it.
STAY = 0.9
LOW = {"community": 0.3, "sigma": 0.3, "zeros": 0.0, "local": 0.0, "sigma_out": 0.1}
HIGH = {"community": 1.0, "sigma": 3.0, "zeros": 0.8, "local": 0.6, "sigma_out": 2.5}
STARTS = (
    {"community": 0.8, "sigma": 1.3, "zeros": 0.1, "local": 0.1, "sigma_out": 1.5},
    {"sigma": 1.8, "zeros": 0.4, "local": 0.4},
)
# The parameters that are free in the fits of a graph.
FREE: dict[str, tuple[tuple[str, ...], ...]] = {
    "orkut": (("sigma",), ("sigma", "local"), ("sigma", "zeros")),
    "friendster": (("sigma",), ("sigma", "local"), ("sigma", "zeros"), ("sigma", "zeros", "local")),
    "papers100m": (("sigma", "sigma_out"), ("sigma", "sigma_out", "local")),
}


# The fits that `dataset=configuration` uses.
CHOSEN = {"orkut": ("sigma", "local"), "friendster": ("sigma", "zeros"), "papers100m": ("sigma", "sigma_out", "local")}


@dataclass(frozen=True)
class Target:
    """What is known of a published graph: sizes, and counts per target of mini- and micro-batches.

    Attributes:
        statistics: public statistics by name.
        counts: `[4]` published counts over the number of targets, in the order of `NAMES`.
    """

    statistics: Mapping[str, float]
    counts: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """A fit: its parameters and the ratio of each count to the published one."""

    graph: str
    batch: int
    used: tuple[str, ...]
    parameters: Mapping[str, float]
    ratios: np.ndarray


def number_of(text: str) -> float:
    """The number that a paper prints, such as 926M or 13.4B."""
    factors = {"K": 1e3, "M": 1e6, "B": 1e9}
    return float(text[:-1]) * factors[text[-1]] if text[-1:] in factors else float(text)


def published_count(rows: Sequence[Mapping[str, str]], graph: str, batches: str, quantity: str) -> float:
    """A count of Table 1.

    Raises:
        DataError: the paper does not print it, or prints it twice.
    """
    setting = f"workers=4;batches={batches}"
    wanted = {"source": "Table 1", "dataset": graph, "setting": setting, "quantity": quantity}
    values = [row["value"] for row in rows if all(row[key] == value for key, value in wanted.items())]
    if len(values) != 1:
        allowed = f"Table 1 prints {len(values)} values of this count"
        raise DataError(Problem(str(PUBLISHED), wanted, allowed, "name a graph and a count of the table"))
    return number_of(values[0])


def read(graph: str) -> Target:
    """The published counts and statistics of `graph`."""
    with PUBLISHED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with STATISTICS.open(newline="") as file:
        statistics = {row["quantity"]: float(row["value"]) for row in csv.DictReader(file) if row["graph"] == graph}
    counts = [
        published_count(rows, graph, batches, quantity)
        for batches, quantity in itertools.product(("mini", "micro"), ("edges_computed", "features_loaded"))
    ]
    return Target(statistics, np.array(counts) / statistics["num_targets"])


def vertex_classes(model: DegreeModel, sigma_out: float | None) -> VertexClasses:
    """Classes on a fine grid of the normal variables: one, and a second one for out-weights."""
    z = np.arange(-6, 6.01, 0.15 if sigma_out is None else 0.4)
    share = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    degree = np.exp(np.clip(location(model) + model.sigma * z, 0, math.log(model.largest)))
    degrees = np.concatenate([[0.0], degree])
    shares = np.concatenate([[model.zeros], (1 - model.zeros) * share])
    if sigma_out is None:
        return VertexClasses(shares, degrees)
    weight = np.exp(sigma_out * z)
    return VertexClasses(np.outer(shares, share).ravel(), np.repeat(degrees, len(z)), np.tile(weight, len(degrees)))


def counts_of(target: Target, parameters: Mapping[str, float], batch: int) -> np.ndarray:
    """`[4]` counts per target of a mini-batch, and of its four micro-batches."""
    known = target.statistics
    V, sigma_out = int(known["num_nodes"]), parameters.get("sigma_out")
    model = DegreeModel(known["num_edges"] / V, parameters["sigma"], int(known["largest"]), parameters.get("zeros", 0))
    classes, local = vertex_classes(model, sigma_out), parameters.get("local", 0.0)
    community = 0.0 if sigma_out is None else parameters.get("community", STAY) * (1 - local)
    levels = Levels(LOCAL_SIZE, local, community)
    counts: list[float] = []
    for targets in (batch, batch // 4):
        expected = expected_counts(V, classes, levels, _communities(V, targets, sigma_out is not None), FANOUTS)
        counts += [sum(expected.edges) / targets, expected.inputs[-1] / targets]
    return np.array(counts)


def _communities(num_nodes: int, targets: int, concentrated: bool) -> Communities:
    if not concentrated:
        return Communities(np.ones(1), np.full((1, 1), targets / num_nodes))
    share = COMMUNITY / num_nodes
    return Communities(np.array([share, 1 - share]), np.array([[targets / COMMUNITY], [0.0]]))


def fit(graph: str, target: Target, batch: int, free: Sequence[str], used: Sequence[str] = NAMES) -> Fitted:
    """Least squares of the logarithms of the `used` counts' ratios."""
    chosen = [NAMES.index(name) for name in used]

    def logarithms(values: np.ndarray) -> np.ndarray:
        ratios = counts_of(target, dict(zip(free, values, strict=True)), batch) / target.counts
        return np.asarray(np.log(ratios)[chosen])

    bounds = [LOW[name] for name in free], [HIGH[name] for name in free]
    solutions = [
        least_squares(logarithms, [(STARTS[0] | start)[name] for name in free], bounds=bounds, diff_step=[1e-3])
        for start in STARTS
    ]
    rounded = [{name: round(float(x), 3) for name, x in zip(free, s.x, strict=True)} for s in solutions]
    # What is compared are rounded parameters: the formulas jump where local blocks vanish.
    best = min(rounded, key=lambda parameters: float((logarithms(np.array(list(parameters.values()))) ** 2).sum()))
    return Fitted(graph, batch, tuple(used), best, counts_of(target, best, batch) / target.counts)


def fits_of(graph: str) -> list[Fitted]:
    """All fits of a graph: both batches, each set of free parameters, and with each count left out."""
    target = read(graph)
    fits = [fit(graph, target, batch, free) for batch in BATCHES for free in FREE[graph]]
    left_out = [tuple(name for name in NAMES if name != left) for left in NAMES]
    fits += [fit(graph, target, BATCHES[0], CHOSEN[graph], used) for used in left_out]
    if graph == "orkut":  # sigma from the mini-batch's edges alone predicts the other three
        fits.append(fit(graph, target, BATCHES[0], ("sigma",), NAMES[:1]))
    return fits


def second_moment(target: Target) -> float:
    """Mean of the squared degree over the square of the mean, from public triangles and their closed share."""
    known = target.statistics
    wedges = known["triangles"] / known["closed_share"] + 2 * known["triangles"]
    mean = known["num_edges"] / known["num_nodes"]
    return (2 * wedges / known["num_nodes"] + mean) / mean**2


def modelled_moment(target: Target, parameters: Mapping[str, float]) -> float:
    """The same of a fitted distribution."""
    known = target.statistics
    mean = known["num_edges"] / known["num_nodes"]
    model = DegreeModel(mean, parameters["sigma"], int(known["largest"]), parameters.get("zeros", 0.0))
    classes = vertex_classes(model, None)
    return float((classes.share * classes.degree**2).sum() / (classes.share * classes.degree).sum() ** 2)


def table() -> str:
    """All fits as CSV text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = ("graph", "batch", "free", "parameters", "fitted_counts", *NAMES, "largest_error")
    writer.writerow([*header, "moment", "public_moment"])
    for graph in GRAPHS:
        target = read(graph)
        for fitted in fits_of(graph):
            moments = (modelled_moment(target, fitted.parameters), second_moment(target)) if graph != DIRECTED else ()
            writer.writerow(
                [graph, fitted.batch, len(fitted.parameters), named(fitted.parameters), "; ".join(fitted.used)]
                + [f"{ratio:.3f}" for ratio in fitted.ratios]
                + [f"{max(abs(fitted.ratios - 1)):.3f}", *(f"{moment:.2f}" for moment in moments)]
                + [""] * (2 - len(moments))
            )
    return text.getvalue()


def named(parameters: Mapping[str, float]) -> str:
    """Parameters as one text."""
    return " ".join(f"{name}={value:g}" for name, value in parameters.items())


def redundancies(graph: str, samples: int = 120) -> list[tuple[float, float]]:
    """Lowest and highest ratio of micro- over mini-batch, edges then features, of all fits nearly as good as the best.

    These are the sampled parameters whose root mean square of logarithms is at most 1.5 times the best fit's, and the
    best fit itself.
    """
    target = read(graph)
    best = fit(graph, target, BATCHES[0], CHOSEN[graph])
    rng, values = np.random.default_rng(0), np.array(list(best.parameters.values()))
    tried = np.concatenate([values[None], values * np.exp(0.08 * rng.standard_normal((samples, len(values))))])
    bound = 1.5 * float(np.sqrt(np.mean(np.log(best.ratios) ** 2)))
    good = []
    for parameters in tried:
        counts = counts_of(target, dict(zip(best.parameters, parameters, strict=True)), BATCHES[0])
        if np.sqrt(np.mean(np.log(counts / target.counts) ** 2)) <= bound:
            good.append((counts[2] / counts[0], counts[3] / counts[1]))
    return [(min(ratios), max(ratios)) for ratios in zip(*good, strict=True)]


def main() -> None:
    """Write or check the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only: error if the file's fits are no best fits")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            check(RESULTS.read_text())
            return
        text = table()
    except GnnexpError as error:
        sys.exit(str(error))
    from fit_shapes_page import write_page

    RESULTS.write_text(text)
    write_page(text)


def check(text: str, error: float = 0.002) -> None:
    """Compare each fit of the table with the formulas, and with its neighbours: none is clearly better. No search.

    Raises:
        DataError: a ratio is not what the formulas give, or a neighbour is better.
    """
    targets = {graph: read(graph) for graph in GRAPHS}
    wrong = []
    for row in csv.DictReader(io.StringIO(text)):
        parameters = {name: float(value) for name, value in (word.split("=") for word in row["parameters"].split())}
        target, used = targets[row["graph"]], [NAMES.index(name) for name in row["fitted_counts"].split("; ")]
        logarithms = np.log(counts_of(target, parameters, int(row["batch"])) / target.counts)
        if max(abs(np.exp(logarithms) - [float(row[name]) for name in NAMES])) > error:
            wrong.append(Problem(row["graph"], row["parameters"], "gives other counts", "run fit_shapes.py"))
        best = float(np.sqrt(np.mean(logarithms[used] ** 2)))
        for name, factor in itertools.product(parameters, (0.95, 1.05)):
            near = parameters | {name: min(max(parameters[name] * factor, LOW[name]), HIGH[name])}
            other = np.log(counts_of(target, near, int(row["batch"])) / target.counts)[used]
            if np.sqrt(np.mean(other**2)) < best - error:
                wrong.append(Problem(row["graph"], row["parameters"], f"{near} is better", "run fit_shapes.py"))
    DataError.raise_all(wrong)


if __name__ == "__main__":
    main()
