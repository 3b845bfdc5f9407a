"""What of docs/systems/*.md is made: which choices a page's presets are, and what papers claim of its systems.

`PYTHONPATH=tests/support python tests/support/system_pages.py` writes both again, between their markers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gnnexp.config.folders import product_folder

FOLDER = Path(__file__).parents[2] / "docs" / "systems"
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "claims"
CLAIMS = Path(__file__).parents[2] / "papers" / "gnnexp_papers" / "claims"
GROUPS = ("paradigm", "partitioner", "sampler", "feature_store", "model", "hardware", "train")


class About(NamedTuple):
    """Whose page it is.

    Attributes:
        presets: of conf/system, the page's own first.
        paper: of papers/gnnexp_papers/claims, whose claims are all on this page; None: others' claims name its systems.
    """

    presets: tuple[str, ...]
    paper: str | None = None


PAGES: Mapping[str, About] = {
    "dgl": About(("dgl", "dgl_cached", "dgl_reference", "dgl_full_graph")),
    "distdgl": About(("distdgl",)),
    "fastsample": About(("fastsample", "fastsample_hybrid", "fastsample_dgl"), "fastsample"),
    "quiver": About(("quiver", "quiver_best")),
    "gnnlab_cache": About(("gnnlab_cache",)),
    "pagraph": About(("pagraph",)),
    "salientpp": About(("salientpp",)),
    "dsp": About(("dsp",)),
    "p3": About(("p3", "p3_pipelined")),
    "gsplit": About(("gsplit", "gsplit_node", "gsplit_edge", "gsplit_rand"), "gsplit"),
    "cooperative": About(("cooperative",)),
    "neutronstar": About(
        ("neutronstar", "neutronstar_comm", "neutronstar_cache", "neutronstar_best", "neutronstar_comm_best")
    ),
    "cagnet_1d": About(("cagnet_1d",)),
    "sancus": About(("sancus", "sancus_cached", "sancus_adaptive")),
    "neutrontp": About(
        (
            "neutrontp",
            "neutrontp_resident",
            "neutrontp_blocks",
            "neutrontp_replicated",
            "neutrontp_naive",
            "neutrontp_base",
            "neutrontp_cs",
            "neutrontp_cs_tp",
            "neutrontp_cs_tp_dt",
        ),
        "neutrontp",
    ),
    "hongtu": About(("hongtu", "hongtu_resident", "hongtu_p2p", "hongtu_base", "hongtu_im"), "hongtu"),
    "distgnn": About(("distgnn", "distgnn_cd5")),
    "pipegcn": About(("pipegcn", "pipegcn_gf")),
    "sdt_gnn": About(("sdt_gnn",), "sdt_gnn"),
}
PAPERS = {
    "fastsample": "FastSample",
    "gsplit": "GSplit",
    "hongtu": "HongTu",
    "neutrontp": "NeutronTP",
    "sdt_gnn": "SDT-GNN",
}


def page(name: str, verdicts: Mapping[str, str] | None = None) -> str:
    """The text of docs/systems/<name>.md with its made parts as they should be.

    Args:
        name: of the page.
        verdicts: what became of claims, by their names; None: as docs/results has it.
    """
    verdicts = kept_verdicts() if verdicts is None else verdicts
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    text = between(text, "presets", presets(PAGES[name].presets))
    return between(text, "claims", claims(name, verdicts))


def kept_verdicts() -> dict[str, str]:
    """Of the claims that `make reproduce-small` has evaluated (docs/results/claims), by their names."""
    found = {}
    for file in sorted(RESULTS.glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            found |= {row["claim"].partition(":")[0]: row["verdict"] for row in csv.DictReader(lines)}
    return found


def between(text: str, marker: str, made: str) -> str:
    """`text` with `made` between `<!-- marker -->` and `<!-- /marker -->`.

    Raises:
        ValueError: these markers are not there once.
    """
    pattern = rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)"
    found, count = re.subn(pattern, lambda match: f"{match[1]}{made}\n{match[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{count} times {marker}")
    return found


def presets(names: Sequence[str]) -> str:
    """A table of what conf/system/<name>.yaml chooses and sets."""
    chosen = {name: _choices(name) for name in names}
    used = [group for group in GROUPS if any(group in choices for choices, _ in chosen.values())]
    rows = ["| preset | " + " | ".join(used) + " | set |", "|---" * (len(used) + 2) + "|"]
    for name, (choices, settings) in chosen.items():
        cells = [f"`{choices[group]}`" if group in choices else "–" for group in used]
        rows.append(f"| `{name}` | {' | '.join(cells)} | {', '.join(f'`{line}`' for line in settings) or '–'} |")
    return "\n".join(rows)


def _choices(name: str) -> tuple[dict[str, str], list[str]]:
    content = yaml.safe_load((product_folder("conf") / "system" / f"{name}.yaml").read_text(encoding="utf-8"))
    overrides = {
        key.removeprefix("override /"): choice for entry in content.pop("defaults") for key, choice in entry.items()
    }
    del content["system"]
    return overrides, list(_settings("", content))


def _settings(prefix: str, node: Mapping[str, Any]) -> list[str]:
    found = []
    for key, value in node.items():
        if isinstance(value, dict):
            found += _settings(f"{prefix}{key}.", value)
        else:
            found.append(f"{prefix}{key}={yaml.safe_dump(value).splitlines()[0]}")
    return found


def claims(name: str, verdicts: Mapping[str, str] | None = None) -> str:
    """The table of claims of a page: all of its paper's, or those of others that measure one of its systems."""
    about = PAGES[name]
    tables = []
    for paper in PAPERS:
        rows = [
            claim for claim in read_claims(paper) if paper == about.paper or set(claim["systems"]) & set(about.presets)
        ]
        if rows and paper == about.paper:
            tables.append(_own(paper, rows, verdicts))
        elif rows:
            tables.append(_others(paper, rows, verdicts))
    return "\n\n".join(tables)


def read_claims(paper: str) -> list[dict[str, Any]]:
    """Of papers/gnnexp_papers/claims."""
    claims: list[dict[str, Any]] = yaml.safe_load((CLAIMS / f"{paper}.yaml").read_text(encoding="utf-8"))
    return claims


def _own(paper: str, rows: Sequence[Mapping[str, Any]], verdicts: Mapping[str, str] | None) -> str:
    lines = [
        f"{len(rows)} claims of the paper, in its words (`papers/gnnexp_papers/claims/{paper}.yaml`, where notes say "
        "how the paper contradicts itself). *Hardware*: the claim is one of a machine."
        + (f" *Verdict*: [figures and reasons](../results/claims/{paper}.md)." if verdicts else ""),
        "",
        _head(("claim", "where", "kind", "what we check"), verdicts),
    ]
    for claim in rows:
        kind = claim["kind"] + (", hardware" if claim["depends_on_hardware"] else "")
        cells = [f'<a id="{claim["claim"]}"></a>{_quote(claim)}', claim["source"], kind, _text(claim["measure"])]
        lines.append(_row(cells, claim, verdicts))
    return "\n".join(lines)


def _others(paper: str, rows: Sequence[Mapping[str, Any]], verdicts: Mapping[str, str] | None) -> str:
    lines = [f"Measured by [{PAPERS[paper]}]({paper}.md#claims):", "", _head(("claim", "where", "kind"), verdicts)]
    for claim in rows:
        where = f"[{claim['source']}]({paper}.md#{claim['claim']})"
        lines.append(_row([_quote(claim), where, claim["kind"]], claim, verdicts))
    return "\n".join(lines)


def _head(columns: Sequence[str], verdicts: Mapping[str, str] | None) -> str:
    names = [*columns, *(["verdict"] if verdicts is not None else [])]
    return f"| {' | '.join(names)} |\n{'|---' * len(names)}|"


def _row(cells: list[str], claim: Mapping[str, Any], verdicts: Mapping[str, str] | None) -> str:
    if verdicts is not None:
        cells = [*cells, verdicts.get(claim["claim"], "not evaluated")]
    return f"| {' | '.join(cells)} |"


def _quote(claim: Mapping[str, Any]) -> str:
    """The paper's words; formulas that its text has twice, as signs and as TeX, are left with their signs."""
    words = re.sub(r"(\S+?)%\1\\%", r"\1 %", _text(claim["says"]))
    words = re.sub(r"(\d)×\1\\times", r"\1×", words).replace("×\\times", "×").replace("\\mathsf{HongTu}", "")
    words = re.sub(r"[\U0001d400-\U0001d7ff]{6,}", "HongTu", words)
    return f"“{words}”"


def _text(text: str) -> str:
    """On one line, safe in a table and in Markdown."""
    text = " ".join(text.split()).replace("|", "\\|")
    return re.sub(r"<(?=\w)", "&lt;", re.sub(r"(?<!\w)_|\*(?=\S)", lambda sign: "\\" + sign[0], text))


if __name__ == "__main__":
    for found in PAGES:
        (FOLDER / f"{found}.md").write_text(page(found), encoding="utf-8")
