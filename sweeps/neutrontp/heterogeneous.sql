-- Epochs on graphs of several relations by system, each compared with a system that samples (NeutronTP, Table 3).

/* runs */
SELECT run FROM runs WHERE status = 'finished' ORDER BY run

/* table */
WITH papers AS (
    -- The paper's names of our systems; seconds per epoch of R-GCN on 16 nodes with a T4 each.
    SELECT dataset, CASE system WHEN 'distdglv2' THEN 'distdgl' ELSE system END AS system, number FROM published
    WHERE source = 'Table 3' AND quantity = 'runtime_s' AND system IN ('distdglv2', 'neutrontp')),
found AS (
    SELECT settings.*, config['system'] AS system, setting.dataset AS dataset, setting.ranks AS ranks, number AS paper_s,
           (SELECT value FROM typical WHERE typical.run = settings.run AND metric = 'time/epoch_s') AS epoch_s,
           (SELECT value FROM typical WHERE typical.run = settings.run AND metric = 'work/edges_computed') AS edges,
           (SELECT coalesce(sum(value), 0) FROM typical WHERE typical.run = settings.run AND starts_with(metric, 'comm/bytes_') AND metric <> 'comm/bytes_skipped') AS sent
    FROM settings() AS settings JOIN runs USING (run) LEFT JOIN papers ON papers.dataset = runs.graph AND papers.system = config['system'])
SELECT unnest(found.label), seconds(found.epoch_s) AS "epoch s", cell(base.epoch_s / found.epoch_s, '{:.2f}') AS "x distdgl",
       cell(found.edges, '{:.0f}') AS "edges computed", megabytes(found.sent) AS "MB sent", cell(found.paper_s, '{:.1f}') AS "paper s",
       cell(base.paper_s / found.paper_s, '{:.2f}') AS "paper x distdgl"
FROM found LEFT JOIN (SELECT DISTINCT ON (dataset, ranks) * FROM found WHERE system = 'distdgl' ORDER BY place DESC) AS base
     ON base.dataset = found.dataset AND base.ranks = found.ranks
ORDER BY found.place

/* caption */
SELECT 'Epoch: wall time of the slowest rank, median of the epochs after the first, which warms up. x distdgl: how many times as fast as distdgl on the same graph and ranks. Edges computed: in an epoch''s forward passes, summed over layers and ranks; if ranks own columns, multiplied by their share of the columns. MB: 10^6 bytes to other ranks in an epoch. Paper: DistDGLv2 and NeutronTP on ogbn-mag (mag_like) and MAG240M (mag_lsc_like), 16 nodes with a GPU each. Machine and sizes differ, so only the order of systems can be compared. neutrontp trains the model''s decoupled twin.',
       left_out(count(*) FILTER (status <> 'finished'), 'failed'),
       left_out(count(*) FILTER (status = 'finished') - (SELECT count(*) FROM settings()), 'repeated later')
FROM runs
