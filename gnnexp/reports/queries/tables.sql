-- The tables that a query reads. Runs are numbered in the order of the report. Values that a record does not have are NULL.

CREATE TABLE runs (
    run INT, path VARCHAR, status VARCHAR, num_epochs INT,
    config MAP(VARCHAR, VARCHAR),       -- text by dotted key; a group (`dataset`) or nested component has its name; also `system`
    facts JSON,                         -- what the paradigm decided before the first epoch
    quality MAP(VARCHAR, DOUBLE),       -- of the partition; empty if nothing was partitioned
    provenance JSON,
    graph VARCHAR, graph_like VARCHAR,  -- the published graph that the dataset is or is like; the one that a generated dataset is like, else empty
    full_size DOUBLE,                   -- factor from counts of an epoch to counts on the paper's graph with the paper's targets
    -- What runs must share for their counts to be compared, and the same as readable text.
    setting STRUCT(dataset VARCHAR, ranks INT, fanouts VARCHAR, batch VARCHAR, layers VARCHAR, shape VARCHAR, data VARCHAR, model VARCHAR, sampler VARCHAR),
    setting_name VARCHAR);

-- Metrics of every epoch (docs/record.md), and the other fields of its line in `epochs.jsonl`; `resumed`: the epoch continued after a stop. See also `derived.sql`.
CREATE TABLE metrics (run INT, epoch INT, metrics MAP(VARCHAR, DOUBLE));
CREATE TABLE lines (run INT, epoch INT, resumed BOOLEAN, ranks JSON, batches JSON);

-- The paper's cells: `value` and `upper` as printed; `number` is `value` as a number, NaN if it is none (OOM).
CREATE TABLE published (source VARCHAR, system VARCHAR, dataset VARCHAR, model VARCHAR, setting MAP(VARCHAR, VARCHAR), quantity VARCHAR, value VARCHAR, upper VARCHAR, number DOUBLE);
