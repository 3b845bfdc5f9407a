-- Memory, transfers and seconds of offloaded training (HongTu, Tables 1, 3, 8 and 9, Equation 4, Figures 9 and 10).

/* views */
CREATE OR REPLACE VIEW last_epochs AS SELECT run, metric, value FROM epochs JOIN runs USING (run) WHERE epoch = num_epochs - 1;
-- What was planned before the first epoch, and what a sweep over the chunks then moved. Rows are summed over all ranks. The order of chunks is that of Algorithm 4 if it costs less.
CREATE OR REPLACE VIEW plans AS
WITH steps AS (
    SELECT run, setting.ranks AS ranks, (facts->>'chunks')::INT AS chunks, (facts->>'cost_initial')::DOUBLE AS cost_before, (facts->>'cost_reorganised')::DOUBLE AS cost_after,
           coalesce(CASE WHEN cost_after < cost_before THEN nullif(facts->'rows_reorganised', 'null') END, facts->'rows_initial') AS rows, nullif(json_array_length(facts->'keeps'), 0) AS layers,
           (facts->>'chunk_bytes_bound')::DOUBLE AS bound_bytes, list_max(((facts->'row_bytes')::DOUBLE[])[:-2]) AS row_bytes, (facts->>'setup_s')::DOUBLE AS setup_s,
           (facts->>'order_s')::DOUBLE AS order_s, coalesce(facts->>'order', '') AS chunk_order
    FROM runs WHERE facts->>'chunks' IS NOT NULL AND coalesce(json_type(facts->'rows_initial'), 'NULL') = 'OBJECT'),
counted AS (
    SELECT run, max(value) FILTER (metric = 'work/vertices_computed') AS vertices, max(value) FILTER (metric = 'tier/h2d_rows_forward') AS host_rows,
           max(value) FILTER (metric = 'tier/d2d_rows_forward') AS peer_rows
    FROM last_epochs GROUP BY run)
SELECT steps.*, ranks * chunks AS parts, (rows->>'original')::BIGINT AS original, (rows->>'inter')::BIGINT AS inter, (rows->>'both')::BIGINT AS both_kinds, (rows->>'foreign')::DOUBLE AS foreign_rows,
       (rows->>'foreign_new')::DOUBLE AS foreign_new, CASE WHEN vertices % layers = 0 THEN vertices / layers END AS V, host_rows / layers AS host_rows,
       CASE WHEN host_rows IS NOT NULL THEN coalesce(peer_rows, 0) / layers END AS peer_rows, original / nullif(V, 0) AS alpha, (1 + alpha) * V / parts * row_bytes AS subgraph_bytes
FROM steps LEFT JOIN counted USING (run);
-- Seconds of an epoch: the mean over ranks, then the median over warm epochs; NULL if a rank did not measure them. Copies of rows during GPU computation are in no phase.
CREATE OR REPLACE VIEW breakdowns AS
WITH of_ranks AS (
    SELECT run, epoch, CASE WHEN times.crossings IS NOT NULL THEN coalesce(times.crossings['h2d'], 0) END AS h2d, CASE WHEN times.crossings IS NOT NULL THEN coalesce(times.crossings['d2h'], 0) END AS d2h,
           CASE WHEN times.crossings IS NOT NULL THEN coalesce(times.crossings['host_add'], 0) END AS host_add,
           CASE WHEN config['paradigm.dedup.inter'] = 'False' THEN waited_s(times, traffic) ELSE 0 END AS hosts,
           CASE WHEN config['paradigm.dedup.inter'] = 'False' THEN 0 ELSE waited_s(times, traffic) END AS d2d,
           CASE WHEN times.crossings IS NOT NULL AND NOT (cardinality(times.crossings) > 0 AND coalesce(starts_with(provenance->'chosen'->>'device', 'cuda'), false) AND coalesce(config['paradigm.prefetch'] = 'True', false))
                THEN computation_s(times, traffic) - times.phases['update'] - coalesce(list_sum(map_values(times.crossings)), 0) END AS compute,
           times.phases['wait'] AS wait_s, times.epoch_s AS epoch_s
    FROM warm_ranks JOIN runs USING (run)),
of_epochs AS (SELECT run, epoch, CASE WHEN count(COLUMNS(* EXCLUDE (run, epoch))) = count(*) THEN avg(COLUMNS(* EXCLUDE (run, epoch))) END FROM of_ranks GROUP BY run, epoch)
SELECT run, CASE WHEN count(COLUMNS(* EXCLUDE (run, epoch))) = count(*) THEN median(COLUMNS(* EXCLUDE (run, epoch))) END FROM of_epochs GROUP BY run;
CREATE OR REPLACE VIEW held AS
SELECT run, CASE WHEN count(memory['topology_bytes']) = count(*) THEN sum(memory['topology_bytes']) END AS topology, CASE WHEN count(memory['vertex_bytes']) = count(*) THEN sum(memory['vertex_bytes']) END AS vertex,
       CASE WHEN count(memory['intermediate_bytes']) = count(*) THEN sum(memory['intermediate_bytes']) END AS intermediate
FROM ranks JOIN runs USING (run) WHERE epoch = (SELECT max(epoch) FROM ranks AS one WHERE one.run = ranks.run) GROUP BY run;
CREATE OR REPLACE MACRO percent(part, whole, form) AS cell(100 * (part / nullif(whole, 0)), form);
CREATE OR REPLACE MACRO found() AS TABLE
SELECT settings.run AS run, place, label, plans.* EXCLUDE (run), breakdowns.* EXCLUDE (run), held.* EXCLUDE (run), (SELECT any_value(value) FROM last_epochs WHERE last_epochs.run = settings.run AND metric = 'memory/device_peak_bytes') AS peak,
       coalesce(provenance->'chosen'->>'device' = 'cpu', false) AS emulated
FROM settings() AS settings JOIN runs USING (run) LEFT JOIN plans USING (run) LEFT JOIN breakdowns USING (run) LEFT JOIN held USING (run);
-- Settings that were run with several numbers of chunks, by what else sets them apart.
CREATE OR REPLACE MACRO curves() AS TABLE
SELECT * FROM (
    SELECT one.*, replace(name, chr(10), ' ') AS curve, count(DISTINCT chunks) OVER (PARTITION BY name) AS num_chunks, bool_and(alpha IS NOT NULL) OVER (PARTITION BY name) AS knows_alpha
    FROM found() AS one JOIN names((SELECT list(run) FROM found() WHERE chunks IS NOT NULL), but := ['paradigm.chunks', 'paradigm.device_memory']) USING (run) WHERE chunks IS NOT NULL)
WHERE num_chunks > 1 ORDER BY place;

/* runs */
SELECT run FROM runs WHERE status = 'finished' AND (config['paradigm'] = 'offload' OR run IN (SELECT run FROM plans) OR run IN (FROM full_graph)) ORDER BY run

/* table */
SELECT unnest(label), cell(topology * 1e-6::DOUBLE, '{:.3f}') AS "topology MB", cell(vertex * 1e-6::DOUBLE, '{:.3f}') AS "vertex MB", cell(intermediate * 1e-6::DOUBLE, '{:.3f}') AS "intermediate MB",
       cell(peak * 1e-6::DOUBLE, '{:.3f}') AS "device peak MB", cell(bound_bytes * 1e-6::DOUBLE, '{:.3f}') AS "promised MB", coalesce(chunks::VARCHAR, '–') AS chunks, coalesce(parts::VARCHAR, '–') AS parts,
       cell(V, '{:.0f}') AS V, coalesce(original::VARCHAR, '–') AS V_ori, coalesce(inter::VARCHAR, '–') AS "V_+p2p", coalesce(both_kinds::VARCHAR, '–') AS "V_+ru", cell(alpha, '{:.3f}') AS alpha,
       cell((original - inter) / nullif(V, 0), '{:.3f}') AS "shared / V", percent(original - inter, original, '{:.1f}') AS "shared %", cell((inter - both_kinds) / nullif(V, 0), '{:.3f}') AS "reused / V",
       percent(inter - both_kinds, original, '{:.1f}') AS "reused %", percent(original - both_kinds, original, '{:.1f}') AS "both kinds save %", cell(foreign_rows, '{:.0f}') AS "foreign rows",
       cell(foreign_new, '{:.0f}') AS "foreign rows, new", cell(host_rows, '{:.10g}') AS "host rows", percent(original - host_rows, original, '{:.1f}') AS "saved %", cell(peer_rows, '{:.10g}') AS "peer rows",
       cell(cost_before, '{:.6g}') AS "cost before", cell(cost_after, '{:.6g}') AS "cost after", coalesce(nullif(chunk_order, ''), '–') AS "order", seconds(setup_s) AS "setup s", seconds(order_s) AS "order s",
       percent(setup_s, 100 * epoch_s, '{:.2f}') AS "setup % of 100 epochs", seconds(h2d) AS "H2D s", seconds(d2h) AS "D2H s", seconds(d2d) AS "D2D s", seconds(hosts) AS "hosts s", seconds(host_add) AS "host add s",
       seconds(compute) AS "compute s", seconds(wait_s) AS "wait s", seconds(epoch_s) AS "epoch s"
FROM found() ORDER BY place

/* caption */
WITH counts AS (
    SELECT count(*) AS total, count(*) FILTER (status = 'finished') AS finished,
           count(*) FILTER (run IN (SELECT run FROM labelled) AND config['paradigm'] = 'offload' AND run NOT IN (SELECT run FROM plans)) AS unplanned FROM runs)
SELECT 'Rows: of one sweep over the chunks in the order of this run, summed over all ranks. alpha: V_ori / V (Table 3). Shared: V_ori - V_+p2p, rows that several ranks read in a batch. Reused: V_+p2p - V_+ru, rows that the rank holds from the batch before. Both are in % of V_ori (Table 8). Both kinds save: 1 - V_+ru / V_ori, even if this run used neither. Foreign: counted rows whose home is another rank, which the paper approximates by the shared rows. New: rows that the rank''s chunk before did not read. Host rows, peer rows: counted in a forward sweep of this run. Saved: 1 - host rows / V_ori. Cost: Equation 4, in seconds if the order names a profile, else in rows; before: order of ranges, after: Algorithm 4. Setup: seconds of cutting, counting and ordering chunks, once (Table 9); order s is a part of them. MB: 10^6 bytes; topology, vertex data and intermediate are summed over all ranks. Device peak and the memory planned for chunks are those of the most loaded rank. Intermediate: peak bytes of the tensors that a pass makes, in either tier. For runs in memory, vertex data is the ranks'' feature stores, and all other rows are intermediate. Seconds: mean over ranks, median over epochs that read no features. H2D, D2H: copies between host and device. D2D: time inside collectives of vertex data. Hosts: the same without inter-rank dedup, where rows go from host to host. Host add: summing gradients in host memory. Compute: forward + backward less these (– if copies overlap with it). The epoch also includes the gradients'' sum and the update. With device=cpu the device tier is emulated in RAM, so H2D and D2H are copies within RAM, and their seconds are not those of PCIe. –: not recorded.',
       CASE WHEN unplanned > 0 THEN format('Offloaded without a recorded plan: {} runs.', unplanned) END,
       left_out(total - finished, 'failed'), left_out(finished - (SELECT count(*) FROM labelled), 'of mini-batches'),
       left_out((SELECT count(*) FROM labelled) - (SELECT count(*) FROM settings()), 'repeated later')
FROM counts

/* figure offload
draw: stacked
x: name
panels:
  - y: [h2d, d2h, d2d, hosts, compute, host_add]
    names: [H2D, D2H, D2D, between hosts, compute, host accumulation]
    colours: ["#0072B2", "#56B4E9", "#009E73", "#F0E442", "#E69F00", "#D55E00"]
    line: {epoch_s: "epoch (wall): also waits,\ngradients' sum, update"}
    label: axis
*/
WITH timed AS (FROM found() WHERE epoch_s IS NOT NULL AND h2d IS NOT NULL)
SELECT name, h2d, d2h, d2d, hosts, compute, host_add, epoch_s,
       'seconds per epoch' || CASE WHEN bool_or(emulated) OVER () THEN chr(10) || '(device tier: RAM)' ELSE '' END AS axis
FROM timed JOIN names((SELECT list(run) FROM timed)) USING (run) WHERE (SELECT count(chunks) FROM timed) > 0 ORDER BY place

/* figure chunks
draw: lines
x: chunks
series: curve
powers: true
panels:
  - {y: [peak_mb, bound_mb, subgraph_mb], names: [measured peak, promised, (1+α)|V|/mn rows], label: "device tier of the fullest rank, MB", xlabel: chunks per rank, log: true}
  - {y: [epoch_s], label: seconds per epoch, xlabel: chunks per rank}
*/
SELECT curve, chunks, peak / 1e6 AS peak_mb, bound_bytes / 1e6 AS bound_mb, subgraph_bytes / 1e6 AS subgraph_mb, epoch_s FROM curves()

/* figure replication
draw: lines
x: parts
series: curve
powers: true
panels:
  - {y: [alpha], label: neighbour replication factor α, xlabel: subgraphs (ranks x chunks)}
*/
SELECT curve, parts, alpha FROM curves() WHERE knows_alpha
