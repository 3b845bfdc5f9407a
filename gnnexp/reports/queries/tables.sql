-- The tables that a query reads. Runs are numbered in the order of the report; what a record does not know is NULL.

CREATE TABLE runs (
    run INT, path VARCHAR, status VARCHAR, num_epochs INT,
    config MAP(VARCHAR, VARCHAR),       -- by dotted key, as text; of a group (`dataset`) and a nested component its name; also `system`
    facts JSON,                         -- what the paradigm decided before the first epoch
    quality MAP(VARCHAR, DOUBLE),       -- of the partition; empty where nothing was partitioned
    provenance JSON,
    graph VARCHAR, graph_like VARCHAR,  -- the published graph that the dataset is or is like; that a generated one is like; else empty
    full_size DOUBLE,                   -- counts of an epoch times this are those of the graph and the targets of the paper
    -- What runs must share for their counts to be compared, and the same to be read.
    setting STRUCT(dataset VARCHAR, ranks INT, fanouts VARCHAR, batch VARCHAR, layers VARCHAR, shape VARCHAR, data VARCHAR, model VARCHAR, sampler VARCHAR),
    setting_name VARCHAR);

-- Metrics of every epoch (docs/record.md), and what its line of `epochs.jsonl` has beside them; `resumed`: it was gone on with after a stop. `derived.sql` makes tables of both.
CREATE TABLE metrics (run INT, epoch INT, metrics MAP(VARCHAR, DOUBLE));
CREATE TABLE lines (run INT, epoch INT, resumed BOOLEAN, ranks JSON, batches JSON);

-- The paper's cells: `value` and `upper` as printed, `number` of `value`, NaN for what is none (OOM).
CREATE TABLE published (source VARCHAR, system VARCHAR, dataset VARCHAR, model VARCHAR, setting MAP(VARCHAR, VARCHAR), quantity VARCHAR, value VARCHAR, upper VARCHAR, number DOUBLE);
