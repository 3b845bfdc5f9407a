-- Seconds of an epoch by task and system: negatives, GNN, decoder, loss (NeutronTP, Table 4).

/* runs */
-- Runs that time the task separately. Earlier versions counted the task in `forward`, and DGL's own loops and offloaded classification still do.
SELECT run FROM runs WHERE status = 'finished' AND run IN (SELECT run FROM typical WHERE metric = 'time/loss_s_mean' AND value > 0) ORDER BY run

/* table */
WITH spent AS (
    SELECT run, sum(value) FILTER (phase = 'negatives') AS negatives, sum(value) FILTER (phase IN ('forward', 'backward', 'wait')) AS gnn,
           sum(value) FILTER (phase = 'decode') AS decoder, sum(value) FILTER (phase = 'loss') AS loss, sum(value) FILTER (phase = 'wait') AS wait_s,
           sum(value) FILTER (phase IN ('sample', 'load', 'sync', 'update')) AS rest_s, sum(value) FILTER (phase = 'epoch') AS epoch_s,
           sum(value) FILTER (phase IN ('negatives', 'forward', 'backward', 'wait', 'decode', 'loss')) AS total
    FROM (SELECT run, regexp_extract(metric, '^time/(.*)_s_mean$', 1) AS phase, value FROM typical WHERE metric LIKE 'time/%\_s\_mean' ESCAPE '\') GROUP BY run),
papers AS (
    -- As the paper calls the parts; GCN on Reddit, 16 nodes with a T4 each.
    SELECT setting['task'] AS task, system, string_agg(CASE WHEN coalesce(nullif(number, 'NaN'), 0) = 0 THEN '–' ELSE format('{:g}', number) END, ' '
               ORDER BY list_position(['negative_sampling_share_pct', 'gnn_computation_share_pct', 'classification_computation_share_pct', 'loss_calculation_share_pct'], quantity)) AS shares
    FROM published WHERE source = 'Table 4' AND quantity IN ('negative_sampling_share_pct', 'gnn_computation_share_pct', 'classification_computation_share_pct', 'loss_calculation_share_pct')
    GROUP BY ALL HAVING count(*) = 4)
SELECT config['task'] AS task, unnest(label), seconds(nullif(negatives, 0)) AS "negatives s", seconds(nullif(gnn, 0)) AS "GNN s", seconds(nullif(decoder, 0)) AS "decoder s",
       seconds(nullif(loss, 0)) AS "loss s", seconds(total) AS "sum s", cell(100 * nullif(negatives, 0) / total, '{:.1f}') AS "negatives %",
       cell(100 * nullif(gnn, 0) / total, '{:.1f}') AS "GNN %", cell(100 * nullif(decoder, 0) / total, '{:.1f}') AS "decoder %",
       cell(100 * nullif(loss, 0) / total, '{:.1f}') AS "loss %", coalesce(shares, '–') AS "paper %", seconds(wait_s) AS "wait s",
       seconds(rest_s) AS "rest s", seconds(epoch_s) AS "epoch s"
FROM settings() JOIN runs USING (run) JOIN spent USING (run) LEFT JOIN papers ON papers.task = config['task'] AND papers.system = config['system'] ORDER BY place

/* caption */
SELECT 'Seconds of an epoch: mean over the ranks, median of the epochs after the first, which warms up. Phases are exclusive. Negatives: drawing negatives, and asking the owners of the ends of links for rows. GNN: forward + backward + all waiting for slower ranks (wait s: the waiting alone). It includes the exchanges of vertex data, of the rows of links'' ends, and of their gradients. Decoder: scores, forward and backward. Vertex classification has no decoder, since the last layer''s outputs are its scores. Loss: its value, and the gradients of the scores. %: of the sum of the four. Paper: the same four, GCN on Reddit, 16 nodes with a GPU each. Rest (in no %): sampling, loading, the gradients'' sum (sync), update. neutrontp trains the model''s decoupled twin.',
       left_out(count(*) FILTER (status <> 'finished'), 'failed'),
       left_out(count(*) FILTER (status = 'finished') - (SELECT count(*) FROM labelled), 'that do not time the task separately'),
       left_out((SELECT count(*) FROM labelled) - (SELECT count(*) FROM settings()), 'repeated later')
FROM runs

/* figure tasks
draw: stacked
x: name
panels:
  - {y: [negatives, gnn, decoder, loss], names: &parts [negatives, GNN, decoder, loss], colours: &colours ["#009E73", "#E69F00", "#CC79A7", "#0072B2"], label: seconds per epoch (mean over ranks)}
  - {y: [negatives_pct, gnn_pct, decoder_pct, loss_pct], reference: [paper_negatives, paper_gnn, paper_decoder, paper_loss], names: *parts, colours: *colours, label: "% (hatched: the paper's)"}
*/
WITH spent AS (
    SELECT run, sum(value) FILTER (metric = 'time/negatives_s_mean') AS negatives,
           sum(value) FILTER (metric IN ('time/forward_s_mean', 'time/backward_s_mean', 'time/wait_s_mean')) AS gnn,
           sum(value) FILTER (metric = 'time/decode_s_mean') AS decoder, sum(value) FILTER (metric = 'time/loss_s_mean') AS loss
    FROM typical GROUP BY run),
papers AS (
    SELECT setting['task'] AS task, system, sum(coalesce(nullif(number, 'NaN'), 0)) FILTER (quantity = 'negative_sampling_share_pct') AS paper_negatives,
           sum(coalesce(nullif(number, 'NaN'), 0)) FILTER (quantity = 'gnn_computation_share_pct') AS paper_gnn,
           sum(coalesce(nullif(number, 'NaN'), 0)) FILTER (quantity = 'classification_computation_share_pct') AS paper_decoder,
           sum(coalesce(nullif(number, 'NaN'), 0)) FILTER (quantity = 'loss_calculation_share_pct') AS paper_loss
    FROM published WHERE source = 'Table 4' GROUP BY ALL HAVING count(*) >= 4)
SELECT name, spent.* EXCLUDE (run), 100 * negatives / total AS negatives_pct, 100 * gnn / total AS gnn_pct, 100 * decoder / total AS decoder_pct, 100 * loss / total AS loss_pct,
       papers.* EXCLUDE (task, system)
FROM settings() JOIN names((SELECT list(run) FROM settings()), first := ['task']) USING (run) JOIN runs USING (run)
     JOIN (SELECT *, negatives + gnn + decoder + loss AS total FROM spent) AS spent USING (run)
     LEFT JOIN papers ON papers.task = config['task'] AND papers.system = config['system'] ORDER BY place
