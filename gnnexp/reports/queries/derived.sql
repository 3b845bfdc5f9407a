-- Tables that are derived from the tables of `tables.sql`.

-- One metric in one epoch; epochs count from 0.
CREATE TABLE epochs AS SELECT run, epoch, one.key AS metric, one.value AS value FROM (SELECT run, epoch, unnest(map_entries(metrics)) AS one FROM metrics);

-- One rank in one epoch. `times.phases` exclude each other; `traffic` has an entry for each purpose that had an exchange; `num_ranks` is the epoch's number of ranks.
CREATE TABLE ranks AS
SELECT run, epoch, num_ranks, resumed, rank, unnest(from_json(ranks->rank, '{
    "times": {"epoch_s": "DOUBLE", "phases": "MAP(VARCHAR, DOUBLE)", "hidden": "MAP(VARCHAR, DOUBLE)", "crossings": "MAP(VARCHAR, DOUBLE)"},
    "traffic": "MAP(VARCHAR, STRUCT(sent_bytes BIGINT, rounds BIGINT, seconds DOUBLE))", "work": "MAP(VARCHAR, BIGINT)", "memory": "MAP(VARCHAR, BIGINT)"}'))
FROM (SELECT *, json_array_length(ranks)::INT AS num_ranks, unnest(range(json_array_length(ranks)::BIGINT))::INT AS rank FROM lines);

-- One rank in one layer of one batch; all numbers count from 0.
CREATE TABLE batches AS
WITH counts AS (SELECT run, epoch, (batches->'edges')::BIGINT[][][] AS edges, (batches->'cross_edges')::BIGINT[][][] AS cross_edges FROM lines),
steps AS (SELECT *, unnest(range(len(edges)))::INT AS step FROM counts),
layers AS (SELECT *, unnest(range(len(edges[step + 1])))::INT AS layer FROM steps),
places AS (SELECT *, unnest(range(len(edges[step + 1][layer + 1])))::INT AS rank FROM layers)
SELECT run, epoch, step, layer, rank, edges[step + 1][layer + 1][rank + 1] AS edges, cross_edges[step + 1][layer + 1][rank + 1] AS cross_edges FROM places;
