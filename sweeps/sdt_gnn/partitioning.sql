-- Quality and cost of partitions (SDT-GNN, Figures 6, 7 and 9, Tables I and II).

/* views */
-- Every partition that some run made or took from the cache, once; graphs in order of first appearance, with rising numbers of parts.
CREATE OR REPLACE VIEW known AS
SELECT max(run) AS run, min(run) AS place FROM runs WHERE cardinality(quality) > 0 GROUP BY regexp_extract(provenance->>'partition', '([^/]*)/*$', 1);
-- The partitioner of each, with those of its options in which partitions with the same one differ.
CREATE OR REPLACE VIEW methods AS
WITH options AS (
    SELECT run, config['partitioner'] AS method, unnest(list_filter(map_keys(config), lambda key: regexp_matches(key, '^partitioner\.[^.]*$') AND key NOT IN ('partitioner._target_', 'partitioner.num_parts'))) AS key,
           list_position(map_keys(config), key) AS place, coalesce(config[key], 'null') AS value FROM known JOIN runs USING (run)),
kinds AS (SELECT config['partitioner'] AS method, list(DISTINCT config) AS configs FROM known JOIN runs USING (run) GROUP BY 1),
telling AS (SELECT * FROM options JOIN kinds USING (method) WHERE len(list_distinct([coalesce(config[key], 'null') FOR config IN configs])) > 1)
SELECT run, config['partitioner'] AS method, concat_ws(' ', config['partitioner'], (
    SELECT string_agg(regexp_replace(key, '^partitioner\.', '') || '=' || value, ' ' ORDER BY place) FROM telling WHERE telling.run = known.run)) AS partitioner
FROM known JOIN runs USING (run);
-- Copies are the same in all definitions for an edge-cut. Collapsed: a part has more than twice the mean of the vertices, or, in a vertex-cut, of the edges. Such a partition is not compared.
-- Data: every edge of the raw graph as two int32. Added: peak memory beyond what the process had before; NULL in older partitions, whose seconds include the loading of kernels.
CREATE OR REPLACE VIEW found AS
SELECT run, min(place) OVER (PARTITION BY provenance->>'dataset_key') AS graph_place, place, coalesce(provenance->>'dataset_key', '') AS graph_key, graph, setting.dataset AS dataset,
       method, partitioner, coalesce(config['partitioner.order'], 'null') AS edge_order, quality, quality['parts']::INT AS parts, quality['replication_cut'] <> quality['replication_full'] AS cuts_vertices,
       coalesce(quality['balance_vertices'], 1) > 2 OR (cuts_vertices AND coalesce(quality['balance_edges'], 1) > 2) AS collapsed,
       8 * list_sum([one.value FOR one IN map_entries(quality) IF regexp_matches(one.key, '^part\d+/edges$')]) AS data_bytes,
       CASE WHEN quality['rss_before_bytes'] IS NOT NULL THEN greatest(0, quality['peak_rss_bytes'] - quality['rss_before_bytes']) END AS added_bytes
FROM known JOIN runs USING (run) JOIN methods USING (run);
-- Compared with SPRING's partition of the same graph into as many parts, in the same order of edges if such a partition exists. NULL if either has collapsed.
CREATE OR REPLACE VIEW compared AS
SELECT DISTINCT ON (one.run) one.*, CASE WHEN NOT spring.collapsed AND NOT one.collapsed THEN spring.quality['replication_full'] / one.quality['replication_full'] END AS ratio_full,
       CASE WHEN NOT spring.collapsed AND NOT one.collapsed THEN spring.quality['replication_artifact'] / one.quality['replication_artifact'] END AS ratio_artifact,
       CASE WHEN NOT spring.collapsed AND NOT one.collapsed AND one.added_bytes IS NOT NULL AND spring.added_bytes IS NOT NULL THEN one.quality['seconds'] / spring.quality['seconds'] END AS slowdown
FROM found AS one LEFT JOIN found AS spring ON spring.method = 'spring' AND spring.graph_key = one.graph_key AND spring.parts = one.parts
ORDER BY one.run, spring.edge_order IS DISTINCT FROM one.edge_order, spring.place;
CREATE OR REPLACE MACRO paper(table_name, wanted, graph, name) AS coalesce((SELECT any_value(as_printed(value, upper)) FROM published WHERE source = table_name AND quantity = wanted AND dataset = graph AND system = name), '–');
CREATE OR REPLACE MACRO paper_clusters(graph, name) AS CASE WHEN paper('Table II', 'num_clusters', graph, name) = '–' THEN '–' ELSE
    paper('Table II', 'num_clusters', graph, name) || ' (' || paper('Table II', 'cluster_size_mean', graph, name) || ' ± ' || paper('Table II', 'cluster_size_std', graph, name) || ')' END;
CREATE OR REPLACE MACRO clusters(quality, moment) AS coalesce(format('{:.0f} ({:.1f} ± {:.1f})', quality['clusters_' || moment || '/count'], quality['clusters_' || moment || '/mean_size'], quality['clusters_' || moment || '/std_size']), '–');

/* runs */
SELECT run FROM known ORDER BY run

/* table */
WITH papers AS (
    SELECT run, CASE WHEN method = 'metis' AND paper('Table I', 'partition_peak_memory_gb', graph, 'metis') <> '–'
                     THEN paper('Table I', 'partition_peak_memory_gb', graph, 'metis') || ' (' || paper('Table I', 'graph_size_gb', graph, '') || ')' ELSE '–' END AS memory,
           CASE WHEN method = 'spring' THEN paper_clusters(graph, 'clustering') ELSE '–' END AS clustered, CASE WHEN method = 'spring' THEN paper_clusters(graph, 'spring') ELSE '–' END AS merged
    FROM found),
more AS (SELECT bool_or(memory <> '–' OR clustered <> '–' OR merged <> '–') AS more FROM papers)
SELECT dataset, parts, partitioner || CASE WHEN collapsed THEN ' (collapsed)' ELSE '' END AS partitioner, cell(quality['replication_full'], '{:.3f}') AS "copies, full",
       cell(quality['replication_artifact'], '{:.3f}') AS "copies, artifact", CASE WHEN cuts_vertices THEN cell(quality['replication_cut'], '{:.3f}') ELSE '–' END AS "copies, cut",
       cell(ratio_full, '{:.3f}') AS "SPRING / it, full", cell(ratio_artifact, '{:.3f}') AS "SPRING / it, artifact", cell(100 * quality['edge_cut'], '{:.2f}') AS "edge cut %",
       cell(quality['balance_vertices'], '{:.3f}') AS "balance vertices", cell(quality['balance_edges'], '{:.3f}') AS "balance edges", cell(quality['balance_train'], '{:.3f}') AS "balance train",
       seconds(quality['seconds']) AS seconds, cell(slowdown, '{:.2f}x') AS "SPRING faster", cell(added_bytes * 1e-6::DOUBLE, '{:.2f}') AS "added MB", cell(data_bytes / 1e6, '{:.2f}') AS "data MB",
       clusters(quality, 'clustered') AS "clusters (size)", clusters(quality, 'merged') AS "merged (size)",
       CASE WHEN more THEN memory END AS "paper's METIS GB (data)?", CASE WHEN more THEN clustered END AS "paper's clusters (size)?", CASE WHEN more THEN merged END AS "paper's merged (size)?"
FROM compared JOIN papers USING (run), more ORDER BY graph_place, parts, place

/* caption */
WITH means AS (
    SELECT format('{} {:.3f}, {:.3f} ({} partitions)', partitioner, geomean(ratio_full), geomean(ratio_artifact), count(*)) AS text, min((graph_place, parts, place)) AS first_place
    FROM compared WHERE ratio_full IS NOT NULL AND method <> 'spring' GROUP BY partitioner)
SELECT 'Copies: vertices that all parts hold, over the vertices of the graph. Full: each vertex has one home, which also holds all its in-neighbours. Artifact: a part holds these and both ends of its edges, as the published code of SDT-GNN counts (its homes are those of partitioner.home=last). Cut: a part holds its vertices and both ends of its edges; –: an edge-cut, where all three numbers are equal. SPRING / it: SPRING''s copies over this partitioner''s (below 1: SPRING copies less). SPRING faster: this partitioner''s seconds over SPRING''s. Both are for the same graph and parts, and for the same order of edges if there is one. Balance: the largest part over the mean; edges of an edge-cut are in-edges. Collapsed: a part has more than twice the mean of the vertices, or, in a vertex-cut, of the edges; it is never compared. Added: peak memory of the process less its memory before, including the mapped graph; –: not recorded, and seconds include the loading of kernels. Data: the directed edges as pairs of int32. MB: 10^6 bytes. Clusters: before and after merging, mean size ± deviation.',
       (SELECT 'SPRING / it, geometric mean, full and artifact: ' || string_agg(text, '; ' ORDER BY first_place) || '.' FROM means),
       left_out(count(*) FILTER (cardinality(quality) = 0), 'without a recorded partition'),
       left_out(count(*) FILTER (cardinality(quality) > 0) - (SELECT count(*) FROM known), 'of a partition that is shown already')
FROM runs

/* figure replication
draw: bars
x: parts
series: partitioner
facets: graph_place
called: {graph_place: dataset}
panels:
  - {y: [copies], mark: artifact, hatched: collapsed_copies, start: 1, label: "copies per vertex: full (bar),\nartifact (dash); hatched: collapsed"}
*/
SELECT graph_place, dataset, 'p = ' || parts AS parts, partitioner, quality['replication_full'] AS copies, quality['replication_artifact'] AS artifact, CASE WHEN collapsed THEN copies END AS collapsed_copies
FROM found ORDER BY graph_place, found.parts, place

/* figure cost
draw: bars
x: graph_place
called: {graph_place: text}
series: partitioner
below: true
panels:
  - {y: [slowdown], start: 1, log: true, label: "seconds in units of SPRING's\n(not of collapsed partitions)"}
  - {y: [memory], start: 1, log: true, label: "memory added, in units of\nthe edges' 8 bytes each"}
*/
SELECT graph_place, dataset || chr(10) || 'p = ' || parts AS text, partitioner, nullif(slowdown, 0) AS slowdown, nullif(added_bytes / nullif(data_bytes, 0), 0) AS memory
FROM compared WHERE parts = (SELECT min(parts) FROM found WHERE found.graph_key = compared.graph_key) ORDER BY graph_place, compared.parts, compared.place
