-- Mini-batches split by each partitioner: load balance and cross edges by layer (GSplit, Figure 5).

/* runs */
-- All ranks share a mini-batch. With groups of ranks, only the ranks of a group do, so such runs are left out. The last run of a seed counts. GSplit's names (section 6.3); metis and metis_edge
-- balance edges and targets, and metis also vertices. If both were run, metis keeps its own name.
SELECT max(run) FROM runs
WHERE status = 'finished' AND config['paradigm'] = 'split_parallel' AND coalesce(config['paradigm.group_size'], 'null') IN ('null', setting.ranks::VARCHAR)
GROUP BY setting, config['partitioner'], config['seed'] ORDER BY 1

/* views */
CREATE OR REPLACE VIEW splits AS
SELECT *, coalesce(list_position(['Rand', 'Edge', 'Node', 'GSplit'], partitioner), 5) AS place FROM (
SELECT run, setting, head, seed, CASE kind WHEN 'random' THEN 'Rand' WHEN 'metis_edge' THEN 'Edge' WHEN 'presampled_node' THEN 'Node' WHEN 'presampled' THEN 'GSplit'
       WHEN 'metis' THEN CASE WHEN EXISTS (FROM runs WHERE config['partitioner'] = 'metis_edge') THEN 'metis' ELSE 'Edge' END ELSE kind END AS partitioner
FROM (SELECT run, setting, head, config['seed'] AS seed, config['partitioner'] AS kind FROM heads() JOIN runs USING (run)));
-- Over all epochs and runs; layer 0 is all of them.
CREATE OR REPLACE VIEW layers AS
WITH counts AS (
    SELECT setting, partitioner, regexp_extract(metric, '(\d+)$', 1)::INT AS layer, coalesce(sum(value) FILTER (metric LIKE 'work/edges%'), 0) AS edges,
           coalesce(sum(value) FILTER (metric LIKE 'work/cross%'), 0) AS crossing
    FROM splits JOIN epochs USING (run) WHERE regexp_matches(metric, '^work/(cross_)?edges_layer\d+$') GROUP BY ALL)
FROM counts UNION ALL SELECT setting, partitioner, 0, sum(edges), sum(crossing) FROM counts GROUP BY ALL;
-- For every batch with edges: the edges of the most loaded rank over the mean of the ranks.
CREATE OR REPLACE VIEW loads AS
WITH counts AS (SELECT setting, partitioner, seed, epoch, step, layer + 1 AS layer, rank, edges FROM splits JOIN batches USING (run))
SELECT setting, partitioner, seed, epoch, step, layer, max(edges) * count(*) / sum(edges) AS load
FROM (FROM counts UNION ALL SELECT setting, partitioner, seed, epoch, step, 0, rank, sum(edges) FROM counts GROUP BY ALL)
GROUP BY ALL HAVING sum(edges) > 0;
CREATE OR REPLACE VIEW shown AS
SELECT setting, partitioner, layer, edges, crossing, (SELECT avg(load) FROM loads AS one WHERE (one.setting, one.partitioner, one.layer) = (layers.setting, layers.partitioner, layers.layer)) AS load,
       (SELECT max(load) FROM loads AS one WHERE (one.setting, one.partitioner, one.layer) = (layers.setting, layers.partitioner, layers.layer)) AS most
FROM layers;

/* table */
WITH below AS (
    SELECT one.setting, one.partitioner, one.layer, 100 * avg((one.load < other.load)::INT) AS pct
    FROM loads AS one JOIN loads AS other USING (setting, seed, epoch, step, layer) WHERE one.partitioner = 'GSplit' AND other.partitioner = 'Edge' GROUP BY ALL)
SELECT unnest(any_value(head)), partitioner, CASE layer WHEN 0 THEN 'all' ELSE layer::VARCHAR END AS layer,
       cell(100 * any_value(crossing) / nullif(any_value(edges), 0), '{:.2f}') AS "cross edges %", cell(any_value(load), '{:.3f}') AS "load mean",
       cell(any_value(most), '{:.3f}') AS "load max", cell(any_value(pct), '{:.1f}') AS "load below Edge %", count(*)::VARCHAR AS runs
FROM splits JOIN shown USING (setting, partitioner) LEFT JOIN below USING (setting, partitioner, layer)
GROUP BY setting, partitioner, place, shown.layer ORDER BY setting, place, partitioner, shown.layer = 0, shown.layer

/* caption */
WITH counts AS (
    SELECT count(*) AS total, count(*) FILTER (status <> 'finished') AS failed,
           count(*) FILTER (status = 'finished' AND NOT (config['paradigm'] = 'split_parallel' AND coalesce(config['paradigm.group_size'], 'null') IN ('null', setting.ranks::VARCHAR))) AS others
    FROM runs)
SELECT 'Layer 1 reads the features. Cross edges: edges whose source belongs to another rank. Load: edges of the most loaded rank in a batch over the mean of the ranks; mean and maximum over batches. Below Edge: batches in which GSplit''s load is below Edge''s.',
       (SELECT string_agg(format('No counts by layer: {}, {}.', partitioner, setting_name), ' ' ORDER BY setting, place, partitioner)
        FROM (SELECT DISTINCT splits.setting, setting_name, place, partitioner FROM splits JOIN runs USING (run) WHERE NOT EXISTS (FROM layers WHERE layers.setting = splits.setting AND layers.partitioner = splits.partitioner))),
       left_out(failed, 'failed'), left_out(others, 'of other kinds'), left_out(total - failed - others - (SELECT count(*) FROM labelled), 'repeated later with the same seed')
FROM counts

/* figure splitting
draw: bars
x: layer
series: partitioner
facets: setting
called: {setting: setting_name}
colours: {Rand: "#999999", Edge: "#56B4E9", Node: "#E69F00", GSplit: "#D55E00"}
panels:
  - {y: [load], mark: most, start: 1, label: "load: mean (bar), maximum (dash)"}
  - {y: [cross_pct], label: "cross edges, %"}
*/
SELECT splits.setting::VARCHAR AS setting, any_value(setting_name) AS setting_name, splits.partitioner AS partitioner, 'layer ' || layer AS layer, coalesce(any_value(load), 0) AS load, coalesce(any_value(most), 0) AS most,
       coalesce(100 * any_value(crossing) / nullif(any_value(edges), 0), 0) AS cross_pct
FROM splits JOIN shown ON shown.setting = splits.setting AND shown.partitioner = splits.partitioner JOIN runs USING (run) WHERE layer > 0 GROUP BY splits.setting, splits.partitioner, place, shown.layer ORDER BY splits.setting, place, splits.partitioner, shown.layer
