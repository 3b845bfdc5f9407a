"""Every mistake in tables is an error that names the file, the line or row, the column and the fix, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from gnnexp.datasets.tables.dataset import Tables
from gnnexp.datasets.tables.engine import MOST_SHOWN
from gnnexp.errors import DataError

Content = str | bytes | Callable[[Path], object]
GOOD = "src,dst\n1,2\n2,3\n"
NODES = "id,label,f\n1,a,1\n2,b,2\n3,a,3\n"


def parquet(**columns: object) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


def feather(**columns: object) -> Callable[[Path], object]:
    return lambda path: pyarrow.feather.write_feather(pa.table(columns), str(path))


@dataclass(frozen=True)
class Bad:
    """Files with a mistake.

    Attributes:
        files: contents of files; those of `edges.csv` and `nodes.csv` have defaults, None leaves them out.
        said: for each expected problem, words of its key, value, sentence and fix.
        options: keys of the dataset.
        count: number of problems; 0: as many as `said`.
    """

    files: Mapping[str, Content | None]
    said: tuple[tuple[str, str, str], ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    count: int = 0


CASES: dict[str, Bad] = {
    "missing files": Bad(
        {"edges.csv": None, "nodes.csv": None},
        (("dataset.nodes", "no table is there", "give a file"), ("dataset.edges", "no table is there", "give a file")),
    ),
    "missing columns": Bad(
        {},
        (
            ("dataset.label", "has this column; columns are id, label, f", "set dataset.label to one of them"),
            ("dataset.source", "it has src, dst", "set dataset.source to one of them"),
        ),
        {"label": "kind", "source": "head"},
    ),
    "repeated ids": Bad(
        {"nodes.csv": "id,label\n1,a\n2,b\n3,a\n\n2,c\n1,d\n"},
        (
            ("nodes.csv, line 6, column id", "is the id of an earlier row", "one row with an id of its own"),
            ("nodes.csv, line 7, column id", "is the id of an earlier row", "one row with an id of its own"),
        ),
    ),
    "repeated texts": Bad(
        {"nodes.csv": 'id,label\n"x\ny",a\nb,b\n"x\ny",c\n', "edges.csv": "src,dst\nb,b\n"},
        (("nodes.csv, line 5, column id", "is the id of an earlier row", "one row"),),
    ),
    "missing ids and ends": Bad(
        {"nodes.csv": "id,label\n1,a\n,b\n3,a\n", "edges.csv": "src,dst\n1,3\n,3\n1,\n"},
        (
            ("nodes.csv, line 3, column id", "is missing", "an id of its own"),
            ("edges.csv, line 3, column src", "is missing", "two ends"),
            ("edges.csv, line 4, column dst", "is missing", "two ends"),
        ),
    ),
    "unknown vertices": Bad(
        {"edges.csv": "# a comment\n# another\nsrc,dst\n1,2\n2,9\n# and one more\n8,7\n"},
        (
            ("edges.csv, line 5, column dst", "is no vertex", "dataset.on_unknown=drop"),
            ("edges.csv, line 7, column src", "is no vertex", "dataset.on_unknown=drop"),
            ("edges.csv, line 7, column dst", "is no vertex", "dataset.on_unknown=drop"),
        ),
    ),
    "unknown vertices without a header": Bad(
        {"edges.csv": "1 2\r\n2 9\r\n"}, (("edges.csv, line 2, column", "is no vertex", "dataset.on_unknown=drop"),)
    ),
    "unknown vertices of shards": Bad(
        {"e/a.csv": "src,dst\n1,2\n2,3\n", "e/b.csv": "src,dst\n1,2\n2,9\n", "edges.csv": None},
        (("b.csv, line 3, column dst", "is no vertex", "dataset.on_unknown=drop"),),
        {"edges": "e"},
    ),
    "unknown vertices of parquet": Bad(
        {
            "e/a.parquet": parquet(src=[1, 2], dst=[2, 3]),
            "e/b.parquet": parquet(src=[1, 2], dst=[2, 9]),
            "edges.csv": None,
        },
        (("b.parquet, row 2, column dst", "is no vertex", "dataset.on_unknown=drop"),),
        {"edges": "e"},
    ),
    "unknown vertices of arrow": Bad(
        {
            "e/a.feather": feather(src=[1, 2], dst=[2, 3]),
            "e/b.feather": feather(src=[1, 2], dst=[2, 9]),
            "edges.csv": None,
        },
        (("b.feather, row 2, column dst", "is no vertex", "dataset.on_unknown=drop"),),
        {"edges": "e"},
    ),
    "unknown vertices of JSON": Bad(
        {"e.jsonl": '{"src": 1, "dst": 2}\n\n{"src": 2, "dst": 9}\n', "edges.csv": None},
        (("e.jsonl, line 3, column dst", "is no vertex", "dataset.on_unknown=drop"),),
        {"edges": "e.jsonl"},
    ),
    "features and labels of no vertex": Bad(
        {"words.json": '{"1": [0], "7": [1], "x": [2]}'},
        (("words.json", "2 ids are no vertices", "correct the file"),),
        {"features": "words.json"},
    ),
    "too many rows of features": Bad(
        {"nodes.csv": "id,label\n1,a\n2,b\n3,a\n", "words.json": '{"1": "ab"}'},
        (("words.json", "must be {id: [number, ...]}", "correct the file"),),
        {"features": "words.json"},
    ),
    "values that are no numbers": Bad(
        {"nodes.csv": "id,label,f,g\n1,a,1,1\n2,b,nan,\n3,a,inf,2\n"},
        (
            ("nodes.csv, line 3, column f", "is no finite number", "dataset.empty=mean"),
            ("nodes.csv, line 3, column g", "is no finite number", "dataset.empty=mean"),
            ("nodes.csv, line 4, column f", "is no finite number", "dataset.empty=mean"),
        ),
    ),
    "a number of parquet beyond float32": Bad(
        {"n.parquet": parquet(id=[1, 2, 3], label=[0, 1, 0], f=[1.5, -1e300, 2.5])},
        (("n.parquet, row 2, column f", "is no finite number", "dataset.features"),),
        {"nodes": "n.parquet"},
    ),
    "whole numbers of pandas, which are no mistakes": Bad(
        {
            "e.parquet": parquet(src=[1.0, 2.0, 3.0], dst=["1", "2", "2"]),
            "n.parquet": parquet(id=[1, 2, 3], label=[0.0, float("nan"), 1.0]),
        },
        (),
        {"edges": "e.parquet", "nodes": "n.parquet"},
    ),
    "ends of pandas with a missing value": Bad(
        {"e.parquet": parquet(src=[1.0, 2.0, float("nan")], dst=[2, 3, 3])},
        (("e.parquet, row 3, column src", "is missing", "two ends"),),
        {"edges": "e.parquet"},
    ),
    "a number beyond float32": Bad(
        {"nodes.csv": "id,label,f\n1,a,1.5\n2,b,1e300\n3,a,2.5\n"},
        (("nodes.csv, line 3, column f", "is no finite number", "dataset.features"),),
    ),
    "a weight beyond float32": Bad(
        {"edges.csv": "src,dst,w\n1,2,0.5\n2,3,1e300\n"},
        (("edges.csv, line 3, column w", "is no finite number", "dataset.weight=null"),),
    ),
    "a class and an id beyond int64, which are no mistakes": Bad(
        {"nodes.csv": f"id,label,f\n1,{2**70},1\n2,5,2\n3,,3\n{2**80},5,2\n"}, ()
    ),
    "mixed types": Bad(
        {"nodes.csv": "id,label,f\n" + "".join(f"{n},a,{n}\n" for n in range(200_000)) + "x,a,tall\n"},
        (("nodes.csv, line 200002, column f", "", "dataset.as_text=[COLUMN]"),),
    ),
    "shards of different types": Bad(
        {"e/a.parquet": parquet(src=[1], dst=[2]), "e/b.parquet": parquet(src=["x"], dst=[2]), "edges.csv": None},
        (("", "b.parquet", "correct the file"),),
        {"edges": "e"},
    ),
    "shards with different columns": Bad(
        {"e/a.csv": "src,dst\n1,2\n", "e/b.csv": "from,dst\n1,2\n", "edges.csv": None},
        (("", "b.csv", "correct the file"),),
        {"edges": "e"},
    ),
    "broken parquet": Bad(
        {"e.parquet": b"PAR1 and nothing more PAR1", "edges.csv": None},
        (("e.parquet", "cannot be read", "correct the file"),),
        {"edges": "e.parquet"},
    ),
    "cut parquet": Bad(
        {"e/a.parquet": parquet(src=[1], dst=[2]), "e/b.parquet": b"PAR1", "edges.csv": None},
        (("", "b.parquet", "correct the file"),),
        {"edges": "e"},
    ),
    "broken arrow": Bad(
        {"e.arrow": b"ARROW1 no", "edges.csv": None},
        (("e.arrow", "cannot be read", "correct the file"),),
        {"edges": "e.arrow"},
    ),
    "broken JSON": Bad(
        {"e.jsonl": '{"src": 1, "dst": 2}\n{"src": 1, \n', "edges.csv": None},
        (("e.jsonl", "cannot be read", "correct the file"),),
        {"edges": "e.jsonl"},
    ),
    "another encoding": Bad(
        {"nodes.csv": "id,label,f\n1,ä,1\n2,b,2\n3,a,3\n".encode("latin-1")},
        (("nodes.csv, line 2", "", "dataset.encoding=latin-1"),),
    ),
    "BOM, CRLF, quoted delimiters": Bad(
        {"nodes.csv": '\ufeffid,label,f\r\n1,"a, ""b""",1\r\n2,b,2\r\n3,"a\r\nb",3\r\n3,a,4\r\n'},
        (("nodes.csv, line 6, column id", "is the id of an earlier row", "one row"),),
    ),
    "rows with other columns": Bad(
        {"edges.csv": "src,dst\n1,2\n3\n1,2,3\n"},
        (("edges.csv, line 3", "", "same number of columns"), ("edges.csv, line 4", "", "same number of columns")),
    ),
    "no bytes": Bad({"edges.csv": b"", "nodes.csv": b""}, (("nodes.csv", "", ""), ("edges.csv", "", ""))),
    "no rows": Bad({"edges.csv": "src,dst\n"}, (("dataset.edges", "there are no edges", "give at least one"),)),
    "no rows of parquet": Bad(
        {"e.parquet": parquet(src=pa.array([], pa.int64()), dst=pa.array([], pa.int64())), "edges.csv": None},
        (("dataset.edges", "there are no edges", "give at least one"),),
        {"edges": "e.parquet"},
    ),
    "no vertices": Bad(
        {"nodes.csv": "id,label,f\n", "edges.csv": "src,dst\n1,2\n"},
        (("dataset.nodes", "has no vertices", "give its table a row"),),
    ),
    "words of a split": Bad(
        {"nodes.csv": "id,label,split\n1,a,train\n2,b,trian\n3,a,test\n"},
        (("nodes.csv, line 3, column split", "is no word of a split", "set dataset.split=random"),),
        {"split": "column"},
    ),
    "several tables at once": Bad(
        {"nodes.parquet": parquet(id=[1, 2, 3], label=[0.5, 1, 1], f=[1, None, 3])},
        (
            ("nodes.parquet, row 2, column f", "is no finite number", "dataset.empty"),
            ("nodes.parquet, row 1, column label", "is no whole number", "dataset.label_kind=real"),
        ),
        {"label_kind": "class", "nodes": "nodes.parquet"},
    ),
    "many wrong rows": Bad(
        {"edges.csv": "src,dst\n" + "1,99\n" * 50},
        (
            ("edges.csv, line 2, column dst", "is no vertex", ""),
            ("edges.csv, line 21, column dst", "is no vertex", ""),
            ("edges.csv", "20 of them are shown", ""),
        ),
        count=MOST_SHOWN + 1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_told(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for file, content in {"edges.csv": GOOD, "nodes.csv": NODES, **case.files}.items():
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        if callable(content):
            content(path)
        elif content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    dataset = Tables(path=str(tmp_path), **{"nodes": "nodes.csv", **case.options})
    if not case.said:  # no mistake
        dataset.load()
        return
    with pytest.raises(DataError) as caught:
        dataset.key()
        dataset.load()
    problems = caught.value.problems
    assert len(problems) == (case.count or len(case.said)), [str(one) for one in problems]
    for key, sentence, fix in case.said:
        assert any(
            key in one.key and sentence in f"{one.key} {one.value} {one.allowed}" and fix in one.fix for one in problems
        ), ((key, sentence, fix), [str(one) for one in problems])
