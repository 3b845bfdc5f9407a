#!/usr/bin/env bash
# DuckDB 2.0.1 rounds fractions of a CSV, and drops keys of a JSON, that begin below its sample of rows.
#
# An edge list has weights 1 and 2 in its first rows, and 2.75 further below. Types are found in a sample of 20,480 rows:
# - read_csv makes the column BIGINT and reads 2.75 as 3. No error, also not with store_rejects=true: reject_errors is
#   empty, while a text such as `x` in that place is an error with its line. So sums of weights are wrong.
# - read_json (newline-delimited) makes the column BIGINT, too, and reads 2.75 as 3.
# - A key that begins below the sample: in one file an error, but of 40 files the first 32 are the sample, and a key of the
#   40th is dropped: the column is not there, and no error says so.
# To be safe: give the types of columns of numbers (types={'weight': 'DOUBLE'}); for JSON sample_size=-1, and
# maximum_sample_files=N for N files.
#
# Packages: duckdb 2.0.1. Nothing of gnnexp is used.
# Seen: what `wanted` says below, of 30,000 edges.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place/env"
"$place/env/bin/pip" install -q 'duckdb==2.0.1'

cat > "$place/late.py" <<'PYTHON'
import json
from pathlib import Path

import duckdb

ROWS = 30_000
weights = [1 + row % 2 for row in range(ROWS - 1)] + [2.75]
Path("edges.csv").write_text("src,dst,weight\n" + "".join(f"{row},{row + 1},{one}\n" for row, one in enumerate(weights)))
lines = [{"src": row, "weight": one} for row, one in enumerate(weights)]
Path("edges.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
last = f"WHERE src = {ROWS - 1}"
for what, query in {
    "csv": f"SELECT weight FROM read_csv('edges.csv', store_rejects=true) {last}",
    "rejected": "SELECT count(*) FROM reject_errors",
    "csv, types given": f"SELECT weight FROM read_csv('edges.csv', types={{'weight': 'DOUBLE'}}) {last}",
    "json": f"SELECT weight FROM read_json('edges.jsonl') {last}",
    "json, all rows sampled": f"SELECT weight FROM read_json('edges.jsonl', sample_size=-1) {last}",
}.items():
    print(f"{what}: {duckdb.sql(query).fetchall()[0][0]}")
files = [f"part_{number:02d}.jsonl" for number in range(40)]
for number, file in enumerate(files):
    Path(file).write_text('{"src": 1, "label": "last"}\n' if number == 39 else '{"src": 1}\n')
for more in ("", ", maximum_sample_files=40"):
    table = duckdb.sql(f"SELECT * FROM read_json({files}{more})")
    print(f"40 files{more}: {len(table.fetchall())} rows of {', '.join(table.columns)}")
PYTHON

wanted='csv: 3
rejected: 0
csv, types given: 2.75
json: 3
json, all rows sampled: 2.75
40 files: 40 rows of src
40 files, maximum_sample_files=40: 40 rows of src, label'
seen=$(cd "$place" && "$place/env/bin/python" late.py)
echo "$seen"
[ "$seen" = "$wanted" ] || { echo "CHANGED; seen before:"; echo "$wanted"; exit 1; }
