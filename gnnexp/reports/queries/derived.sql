-- Tables that are made of those of `tables.sql`.

-- A metric of an epoch, from 0.
CREATE TABLE epochs AS SELECT run, epoch, one.key AS metric, one.value AS value FROM (SELECT run, epoch, unnest(map_entries(metrics)) AS one FROM metrics);

-- A rank in an epoch: `times.phases` are exclusive; `traffic` is by purpose, and one without an exchange is not there; `num_ranks` of the epoch.
CREATE TABLE ranks AS
SELECT run, epoch, num_ranks, resumed, rank, unnest(from_json(ranks->rank, '{
    "times": {"epoch_s": "DOUBLE", "phases": "MAP(VARCHAR, DOUBLE)", "hidden": "MAP(VARCHAR, DOUBLE)", "crossings": "MAP(VARCHAR, DOUBLE)"},
    "traffic": "MAP(VARCHAR, STRUCT(sent_bytes BIGINT, rounds BIGINT, seconds DOUBLE))", "work": "MAP(VARCHAR, BIGINT)", "memory": "MAP(VARCHAR, BIGINT)"}'))
FROM (SELECT *, json_array_length(ranks)::INT AS num_ranks, unnest(range(json_array_length(ranks)::BIGINT))::INT AS rank FROM lines);

-- A rank in a layer of a batch; all are counted from 0.
CREATE TABLE batches AS
WITH counts AS (SELECT run, epoch, (batches->'edges')::BIGINT[][][] AS edges, (batches->'cross_edges')::BIGINT[][][] AS cross_edges FROM lines),
steps AS (SELECT *, unnest(range(len(edges)))::INT AS step FROM counts),
layers AS (SELECT *, unnest(range(len(edges[step + 1])))::INT AS layer FROM steps),
places AS (SELECT *, unnest(range(len(edges[step + 1][layer + 1])))::INT AS rank FROM layers)
SELECT run, epoch, step, layer, rank, edges[step + 1][layer + 1][rank + 1] AS edges, cross_edges[step + 1][layer + 1][rank + 1] AS cross_edges FROM places;
