"""Make 12 small data sets, each odd in its own way, as people have them: `python tests/data/odd/make.py [FOLDER]`.

The folders next to this file are what the script made. They belong to the repository, so tests do not depend on the
versions of the libraries that write them.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

PEOPLE = 48
FIRST = ("Ann", "Bob", "Chloé", "Dörte", "Émile", "Zoë", "Łukasz", "José")
LAST = ("Smith", "Müller", "Nuñez", "O'Brien", "de la Cruz", "Ng")
NAMES = [f"{first} {last}" for last in LAST for first in FIRST]


def links(seed: int, count: int = 150, sides: int = 2) -> list[tuple[int, int]]:
    """Edges between `PEOPLE` vertices, most of them inside a class `vertex % sides`."""
    draw = random.Random(seed)
    found = []
    while len(found) < count:
        first, second = draw.randrange(PEOPLE), draw.randrange(PEOPLE)
        if first != second and (first % sides == second % sides or draw.random() < 0.2):
            found.append((first, second))
    return found


def lines(path: Path, rows: Iterable[str], *, end: str = "\n", encoding: str = "utf-8", start: str = "") -> None:
    """Write lines of text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((start + "".join(row + end for row in rows)).encode(encoding))


def table(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV with quotes where they are needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8", newline="")


def only_names(place: Path) -> None:
    """Edges between names, without a line of names, and nothing else."""
    lines(place / "friends.csv", (f"{NAMES[u]},{NAMES[v]}" for u, v in links(1)))


def words_in_json(place: Path) -> None:
    """As MUSAE's folders: a table of edges, a table of vertices with a column of classes, and words in JSON."""
    draw = random.Random(2)
    table(place / "club_edges.csv", [("id_1", "id_2"), *links(2)])
    table(
        place / "club_target.csv",
        [
            ("id", "page_name", "page_type"),
            *((one, f"The page, number {one}", ("tvshow", "government")[one % 2]) for one in range(PEOPLE)),
        ],
    )
    words = {str(one): [*sorted(draw.sample(range(30), 4)), 30 + one % 2] for one in range(PEOPLE)}
    lines(place / "club_features.json", [json.dumps(words)])


def snap_list(place: Path) -> None:
    """A list as SNAP publishes: comments, tabs, and ids with gaps."""
    head = ["# Directed graph: wiki-Odd.txt", f"# Nodes: {PEOPLE} Edges: 150", "# FromNodeId\tToNodeId"]
    lines(place / "wiki-Odd.txt", [*head, *(f"{u * 37 + 30}\t{v * 37 + 30}" for u, v in links(3))], end="\r\n")


def german_export(place: Path) -> None:
    """Semicolons, Latin-1 and decimal commas, as a spreadsheet in German exports."""
    draw = random.Random(4)
    lines(place / "kanten.csv", ["von;nach", *(f"P{u};P{v}" for u, v in links(4))], encoding="latin-1")
    rows = (
        f"P{one};{name};{draw.uniform(0, 9) + one % 2:.2f};{('grün', 'rot')[one % 2]}".replace(".", ",")
        for one, name in enumerate(NAMES)
    )
    lines(
        place / "personen.csv",
        ["node_id;Straße;Größe;class", *(row.replace("Łukasz", "Lukasz") for row in rows)],
        encoding="latin-1",
    )


def windows_tabs(place: Path) -> None:
    """TSV from Windows: a byte order mark, CRLF, and texts as ids."""
    lines(place / "edges.tsv", ["source\ttarget", *(f"n-{u}\tn-{v}" for u, v in links(5))], end="\r\n", start="\ufeff")
    lines(
        place / "nodes.tsv",
        ["name\tlabel\tage", *(f"n-{one}\t{'ab'[one % 2]}\t{20 + one}" for one in range(PEOPLE))],
        end="\r\n",
        start="\ufeff",
    )


def parquet_shards(place: Path) -> None:
    """Shards of vertices and edges in folders, with lists as features, as Spark writes them."""
    import pyarrow as pa
    from pyarrow import parquet

    draw, edges = random.Random(6), links(6)
    for folder in ("nodes", "edges"):
        (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / "_SUCCESS").touch()
    for shard in range(2):
        ids = range(shard * PEOPLE // 2, (shard + 1) * PEOPLE // 2)
        parquet.write_table(
            pa.table(
                {
                    "id": [10**12 + one for one in ids],
                    "y": [one % 2 for one in ids],
                    "embedding": pa.array(
                        [[draw.gauss(one % 2, 1) for _ in range(4)] for one in ids], pa.list_(pa.float32())
                    ),
                }
            ),
            place / "nodes" / f"part-0000{shard}.parquet",
        )
        parquet.write_table(
            pa.table(
                {name: [10**12 + edge[end] for edge in edges[shard::2]] for end, name in enumerate(("src", "dst"))}
            ),
            place / "edges" / f"part-0000{shard}.parquet",
        )


def two_types(place: Path) -> None:
    """JSON lines of authors and papers: two types of vertices and two types of edges."""
    draw = random.Random(7)
    lines(place / "authors.jsonl", (json.dumps({"id": f"a{one}", "h_index": draw.randrange(40)}) for one in range(20)))
    lines(
        place / "papers.jsonl",
        (
            json.dumps({"id": f"p{one}", "year": 1990 + one % 30, "label": ("KDD", "ICML")[one % 2]})
            for one in range(PEOPLE)
        ),
    )
    lines(
        place / "writes.jsonl",
        (json.dumps({"author": f"a{draw.randrange(20)}", "paper": f"p{one}"}) for one in range(PEOPLE)),
    )
    lines(place / "cites.jsonl", (json.dumps({"citing": f"p{u}", "cited": f"p{v}"}) for u, v in links(7)))


def packed_weights(place: Path) -> None:
    """A packed CSV with weights, duplicates and self loops."""
    draw = random.Random(8)
    edges = [*links(8), *links(8)[:20], (3, 3)]
    rows = ["source,target,weight", *(f"{u},{v},{draw.uniform(0.1, 2):.3f}" for u, v in edges)]
    place.mkdir(parents=True, exist_ok=True)
    with (place / "network.csv.gz").open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write("".join(row + "\n" for row in rows).encode())


def no_names(place: Path) -> None:
    """Numbers without a line of names, and a file with a class for each of them."""
    lines(place / "graph.edgelist", (f"{u + 100} {v + 100}" for u, v in links(9)))
    lines(place / "labels.csv", (f"{one + 100},{one % 2 + 1}" for one in range(PEOPLE)))


def quoted_ids(place: Path) -> None:
    """Ids with commas, quotes and line breaks."""
    ids = [
        f'{name.split()[-1]}, "{name.split()[0]}"' + ("\nJunior" if one % 7 == 0 else "")
        for one, name in enumerate(NAMES)
    ]
    table(place / "knows.csv", [("from", "to"), *((ids[u], ids[v]) for u, v in links(10))])
    table(
        place / "people.csv",
        [
            ("name", "class", "remark"),
            *((one, ("red", "blue")[number % 2], "a, b\nc") for number, one in enumerate(ids)),
        ],
    )


def dates_and_split(place: Path) -> None:
    """Time stamps of edges and of vertices, and a column with the split."""
    draw = random.Random(11)
    table(
        place / "messages.csv",
        [
            ("src", "dst", "timestamp"),
            *((u, v, f"2024-03-{draw.randrange(1, 29):02d}T12:00:00Z") for u, v in links(11)),
        ],
    )
    words = ["train"] * 6 + ["valid"] * 2 + ["test"] * 2
    table(
        place / "users.csv",
        [
            ("user_id", "joined", "posts", "label", "split"),
            *(
                (
                    one,
                    f"2023-01-{one % 28 + 1:02d}",
                    5 * (one % 2) + draw.randrange(9),
                    ("bot", "human")[one % 2],
                    words[one // 2 % len(words)],
                )
                for one in range(PEOPLE)
            ),
        ],
    )


def missing_values(place: Path) -> None:
    """A survey with the words NA and ? for missing numbers, and with vertices that no edge names."""
    draw = random.Random(12)
    table(place / "ties.csv", [("from_id", "to_id"), *links(12)])
    table(
        place / "survey.csv",
        [
            ("id", "age", "income", "class"),
            *(
                (
                    one,
                    "NA" if one % 9 == 0 else 20 + one,
                    "?" if one % 11 == 0 else f"{draw.uniform(1, 5) + one % 2:.1f}",
                    "" if one % 10 == 0 else ("yes", "no")[one % 2],
                )
                for one in range(PEOPLE + 4)
            ),
        ],
    )


SETS: dict[str, Callable[[Path], None]] = {
    one.__name__: one
    for one in (
        only_names,
        words_in_json,
        snap_list,
        german_export,
        windows_tabs,
        parquet_shards,
        two_types,
        packed_weights,
        no_names,
        quoted_ids,
        dates_and_split,
        missing_values,
    )
}


def main(folder: Path) -> None:
    """Write all data sets to folders of their names."""
    for name, make in SETS.items():
        make(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
