-- Redundant work of data parallelism: what its micro-batches compute and load, compared with one mini-batch (GSplit, Table 1).
-- Micro is data parallelism with a neighbour sample per rank (`sampler.key=micro`). The owners' shares of a batch are no even micro-batches, so they do not count. Mini is split
-- parallelism on as many ranks, in one group. If there is none, Mini is a run of one rank, whose batch is the mini-batch for any number of ranks.

/* views */
CREATE OR REPLACE VIEW roles AS
SELECT *, CASE WHEN config['paradigm'] = 'split_parallel' AND coalesce(config['paradigm.group_size'], 'null') IN ('null', setting.ranks::VARCHAR) THEN 'split'
               WHEN config['paradigm'] <> 'data_parallel' THEN 'other'
               WHEN config['sampler.key'] = 'micro' AND (setting.ranks = 1 OR coalesce(config['paradigm.assign'], 'null') IN ('even', 'null')) THEN 'micro'
               WHEN setting.ranks = 1 THEN 'alone' ELSE 'other' END AS role
FROM runs WHERE status = 'finished';
-- A side of the comparison: edges computed and features loaded in an epoch, over all ranks, mean over epochs and runs.
CREATE OR REPLACE VIEW sides AS
WITH sums AS (
    SELECT run, epoch, sum(value) FILTER (metric = 'work/edges_computed') AS edges, sum(value) FILTER (metric <> 'work/edges_computed') AS features
    FROM epochs WHERE metric IN ('work/edges_computed', 'work/features_loaded_host', 'work/features_loaded_local', 'work/features_loaded_peer', 'work/features_loaded_remote',
                                 'work/features_loaded_disk') GROUP BY run, epoch)
SELECT role, setting, struct_update(setting, ranks := 1) AS alone, any_value(setting_name) AS setting_name, arg_min(full_size, run) AS full_size, any_value(graph_like) AS graph_like,
       avg(edges) AS edges, avg(features) AS features
FROM roles LEFT JOIN sums USING (run) GROUP BY role, setting;
-- Every setting on micro-batches with the nearest mini-batch that there is.
CREATE OR REPLACE VIEW pairs AS
SELECT DISTINCT ON (micro.setting) micro.setting AS setting, micro.setting_name AS setting_name, micro.graph_like AS graph_like, mini.role AS mini_role, mini.setting AS mini_setting,
       micro.edges AS edges_micro, mini.edges AS edges_mini, micro.features AS features_micro, mini.features AS features_mini, micro.full_size AS size_micro, mini.full_size AS size_mini
FROM sides AS micro LEFT JOIN sides AS mini ON (mini.role = 'split' AND mini.setting IN (micro.setting, micro.alone)) OR (mini.role IN ('alone', 'micro') AND mini.setting = micro.alone)
WHERE micro.role = 'micro' ORDER BY micro.setting, mini.role <> 'split', mini.setting <> micro.setting, mini.role <> 'alone';
CREATE OR REPLACE MACRO paper(graph, wanted, side) AS (SELECT any_value(number) FROM published WHERE source = 'Table 1' AND quantity = wanted AND setting['batches'] = side AND dataset = graph AND graph <> '');
CREATE OR REPLACE MACRO paper_ratio(graph, wanted) AS coalesce((SELECT any_value(value) FROM published WHERE source = 'Table 1' AND quantity = 'redundancy_ratio' AND setting['of'] = wanted AND dataset = graph), '-');

/* runs */
-- Settings on micro-batches that have a matching mini-batch.
SELECT run FROM roles JOIN pairs USING (setting) WHERE role = 'micro' AND mini_role IS NOT NULL ORDER BY run

/* table */
SELECT unnest(head), cell(edges_micro, '{:.0f}') AS "edges micro", cell(edges_mini, '{:.0f}') AS "edges mini", coalesce(format('{:.2f}x', edges_micro / nullif(edges_mini, 0)), '–') AS "edges ratio",
       cell(features_micro, '{:.0f}') AS "features micro", cell(features_mini, '{:.0f}') AS "features mini", coalesce(format('{:.2f}x', features_micro / nullif(features_mini, 0)), '–') AS "features ratio",
       paper_ratio(graph_like, 'edges_computed') AS "paper's edges ratio", paper_ratio(graph_like, 'features_loaded') AS "paper's features ratio",
       with_papers(edges_micro * size_micro, paper(graph_like, 'edges_computed', 'micro')) AS "edges micro, full size / paper?",
       with_papers(edges_mini * size_mini, paper(graph_like, 'edges_computed', 'mini')) AS "edges mini, full size / paper?",
       with_papers(features_micro * size_micro, paper(graph_like, 'features_loaded', 'micro')) AS "features micro, full size / paper?",
       with_papers(features_mini * size_mini, paper(graph_like, 'features_loaded', 'mini')) AS "features mini, full size / paper?"
FROM pairs JOIN (SELECT runs.setting AS setting, any_value(head) AS head FROM heads() JOIN runs USING (run) GROUP BY 1) USING (setting) ORDER BY setting

/* caption */
WITH unused AS (FROM sides WHERE role IN ('split', 'alone') AND (role, setting) NOT IN (SELECT (mini_role, mini_setting) FROM pairs WHERE mini_role IS NOT NULL)),
others AS (SELECT config['system'] AS system, count(*) AS num_runs, min(run) AS place FROM roles WHERE role = 'other' GROUP BY 1)
SELECT 'Edges computed and features loaded in an epoch, summed over all ranks, mean over epochs and runs. Micro: data parallelism, where each rank samples its own micro-batch. Mini: one mini-batch for all ranks. Paper: GSplit, Table 1, 4 GPUs.',
       (SELECT string_agg(format('Mini of {} is a run of one rank.', setting_name), ' ' ORDER BY setting) FROM pairs WHERE mini_role IS NOT NULL AND (mini_role <> 'split' OR mini_setting <> setting)),
       (SELECT string_agg(format('Micro without its mini: {}.', setting_name), ' ' ORDER BY setting) FROM pairs WHERE mini_role IS NULL),
       (SELECT string_agg(format('Mini without its micro: {}.', setting_name), ' ' ORDER BY role, setting) FROM unused),
       CASE WHEN EXISTS (FROM pairs WHERE graph_like <> '') OR EXISTS (FROM unused WHERE graph_like <> '') THEN
           'Full size: counts, multiplied by the size and the steps of the published graph over ours. If they are more than 1.5 times off the paper''s, our graph decides no claim (docs/reports.md).' END,
       (SELECT 'Neither micro nor mini: ' || string_agg(format('{} of {}', num_runs, system), ', ' ORDER BY place) || '.' FROM others),
       (SELECT CASE WHEN count(*) > 0 THEN format('Failed: {} runs.', count(*)) END FROM runs WHERE status <> 'finished')
