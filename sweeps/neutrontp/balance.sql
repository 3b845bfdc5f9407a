-- Edges computed and bytes sent by every rank in full-graph training (NeutronTP, Figures 3, 4, 5, 8 and 10, Table 2).

/* runs */
SELECT run FROM runs WHERE status = 'finished' AND run IN (FROM full_graph) AND run IN (SELECT run FROM warm_ranks) ORDER BY run

/* table */
WITH loads AS (
    SELECT run, rank, count(*) AS num_epochs, avg(computation_s(times, traffic)) AS computation_s, avg(exchange_s(traffic)) AS exchange_s,
           avg(coalesce(traffic['gradients'].seconds, 0)) AS gradients_s, avg(coalesce(times.phases['wait'], 'NaN')) AS wait_s,
           avg(coalesce(times.epoch_s, 'NaN')) AS epoch_s, sum(coalesce(work['edges_computed'], 0)) AS edges, sum(coalesce(work['edges_redundant'], 0)) AS redundant,
           sum(work['edges_cross']) AS fetched, sum(sent_bytes(traffic)) AS sent, sum(coalesce(traffic['gradients'].sent_bytes, 0)) AS gradient_bytes,
           sum(payload_rounds(traffic)) AS rounds
    FROM warm_ranks GROUP BY run, rank),
totals AS (
    SELECT run, any_value(num_epochs) AS n, max(computation_s) AS most_computation, min(computation_s) AS least_computation,
           max(exchange_s + gradients_s) AS most_exchange, min(exchange_s + gradients_s) AS least_exchange, max(wait_s) AS wait_s, max(epoch_s) AS epoch_s,
           sum(edges) AS edges, string_agg(mean_count(edges, num_epochs), ' ' ORDER BY rank) AS edges_by_rank, max(edges) * count(*) / sum(edges) AS edges_skew,
           sum(sent) AS sent, string_agg(mean_count(sent, num_epochs), ' ' ORDER BY rank) AS sent_by_rank, max(sent) * count(*) / sum(sent) AS sent_skew,
           sum(gradient_bytes) AS gradient_bytes, sum(redundant) AS redundant, sum(fetched) AS fetched, first(rounds ORDER BY rank) AS rounds,
           100 * sum(exchange_s + CASE WHEN edges > 0 THEN computation_s * redundant / edges ELSE 0 END) / sum(epoch_s) AS dependency_pct
    FROM loads GROUP BY run)
SELECT unnest(label), seconds(most_computation) AS "computation s max", seconds(least_computation) AS "computation s min",
       seconds(most_exchange) AS "communication s max", seconds(least_exchange) AS "communication s min", seconds(wait_s) AS "wait s max",
       seconds(epoch_s) AS "epoch s", mean_count(edges, n) AS edges, edges_by_rank AS "edges by rank", cell(edges_skew, '{:.3f}') AS "edges max/mean",
       mean_count(sent, n) AS bytes, sent_by_rank AS "bytes by rank", cell(sent_skew, '{:.3f}') AS "bytes max/mean",
       mean_count(gradient_bytes, n) AS "gradient bytes", mean_count(redundant, n) AS "redundant edges",
       cell(100 * redundant / nullif(edges - redundant, 0), '{:.2f}') AS "redundant %",
       CASE WHEN fetched IS NULL THEN '–' ELSE mean_count(fetched + redundant, n) END AS "VD edges",
       CASE WHEN fetched IS NULL THEN '–' ELSE cell(dependency_pct, '{:.1f}') END AS "VD time %", mean_count(rounds, n) AS collectives
FROM settings() JOIN totals USING (run) ORDER BY place

/* caption */
WITH counts AS (
    SELECT count(*) FILTER (status <> 'finished') AS failed, count(*) FILTER (status = 'finished') AS finished,
           count(*) FILTER (status = 'finished' AND run IN (FROM full_graph)) AS full_graph_runs FROM runs)
SELECT 'A rank''s epoch is the mean over epochs that read no features. Computation: forward + backward + update, less the time in which the loop was inside collectives of vertex data or waited for them. Communication: all time inside collectives, including hidden time, so both together may exceed the epoch. Neither includes waiting for slower ranks. Edges: of a forward pass; with tensor parallelism, multiplied by the rank''s share of the columns. Bytes: to other ranks, without gradients. Redundant: edges into another rank''s vertices, in % of the necessary edges. VD (vertex dependency) edges: redundant edges, and edges whose source was fetched, now or (stale) before; an edge that is both counts twice. VD time: communication without gradients + computation x redundant edges / edges (an estimate), as a share of the epoch. –: no rank lacks a vertex. Collectives: exchanges of payload without gradients, summed over all chunks.',
       left_out(failed, 'failed'), left_out(finished - full_graph_runs, 'without counts of full-graph training'),
       left_out(full_graph_runs - (SELECT count(*) FROM labelled), 'without an epoch that reads no features'),
       left_out((SELECT count(*) FROM labelled) - (SELECT count(*) FROM settings()), 'repeated later')
FROM counts

/* figure balance
draw: bars
x: name
series: rank
own: true
below: true
panels:
  - {y: [edges], hatched: redundant, label: "edges computed\n(hatched: redundant)"}
  - {y: [sent], label: "bytes sent\n(without gradients)"}
*/
SELECT name, 'rank ' || rank AS rank, avg(coalesce(work['edges_computed'], 0)) AS edges, nullif(avg(coalesce(work['edges_redundant'], 0)), 0) AS redundant,
       avg(sent_bytes(traffic)) AS sent
FROM settings() JOIN names((SELECT list(run) FROM settings())) USING (run) JOIN warm_ranks USING (run) GROUP BY run, place, name, warm_ranks.rank ORDER BY place, warm_ranks.rank

/* figure collectives
draw: lines
x: layers
series: name
panels:
  - {y: [collectives], label: collectives per epoch}
*/
SELECT replace(name, chr(10), ' ') AS name, config['model.layers']::INT AS layers, avg(payload_rounds(traffic)) AS collectives
FROM settings() JOIN names((SELECT list(run) FROM settings()), but := ['layers']) USING (run) JOIN runs USING (run) JOIN warm_ranks USING (run)
WHERE warm_ranks.rank = 0 AND (SELECT count(DISTINCT config['model.layers']) FROM settings() JOIN runs USING (run)) > 1
GROUP BY run, place, name, layers ORDER BY place
