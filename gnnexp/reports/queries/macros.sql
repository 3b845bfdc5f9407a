-- Macros and views that queries of reports share. Tables: docs/reports.md.

-- Cells: a number in a format; – if there is none.
CREATE MACRO cell(value, form) AS coalesce(format(form, nullif(value::DOUBLE, 'NaN'::DOUBLE)), '–');
CREATE MACRO seconds(value) AS cell(value, '{:.4f}');
CREATE MACRO megabytes(value) AS CASE WHEN coalesce(nullif(value::DOUBLE, 'NaN'::DOUBLE), 0) = 0 THEN '0' ELSE cell(value / 1e6, '{:.3f}') END;
-- The mean of whole numbers over `num_epochs` epochs: a whole number if it is exact, else with two decimals.
CREATE MACRO mean_count(total, num_epochs) AS CASE WHEN total % num_epochs = 0 THEN (total // num_epochs)::VARCHAR ELSE format('{:.2f}', total / num_epochs) END;
-- A count as papers print it: 926M, 13.4B, 8.5.
CREATE MACRO short(value) AS CASE WHEN abs(value) >= 1e9 THEN format('{:.3g}B', value / 1e9) WHEN abs(value) >= 1e6 THEN format('{:.3g}M', value / 1e6)
    WHEN abs(value) >= 1e3 THEN format('{:.3g}K', value / 1e3) ELSE format('{:.3g}', value::DOUBLE) END;
CREATE MACRO times_off(ours, papers) AS CASE WHEN ours > 0 THEN greatest(ours / papers, papers / ours) ELSE 'inf'::DOUBLE END;
CREATE MACRO with_papers(ours, papers) AS short(ours) || ' / ' || short(papers) || ' (' || CASE WHEN times_off(ours, papers) > 1.05 THEN format('{:.2g}x off', times_off(ours, papers)::DOUBLE) ELSE 'equal' END || ')';
-- Sentences of a caption.
CREATE MACRO left_out(num_runs, why) AS CASE WHEN num_runs > 0 THEN format('Left out: {} runs {}.', num_runs, why) END;
CREATE MACRO as_printed(value, upper) AS CASE WHEN upper <> '' THEN value || ' to ' || upper ELSE value END;

-- A metric of a typical epoch: the median of those after the first, which warms up.
CREATE VIEW typical AS SELECT run, metric, median(value) AS value FROM epochs JOIN runs USING (run) WHERE epoch > 0 OR num_epochs = 1 GROUP BY run, metric;
-- Runs of full-graph training: every epoch counts redundant edges.
CREATE VIEW full_graph AS SELECT run FROM epochs GROUP BY run HAVING count(*) FILTER (metric = 'work/edges_redundant') = count(DISTINCT epoch);
-- What ranks did in epochs that read no features, that ran on the last number of ranks, and that did not continue after a stop. The counts of loaded rows show
-- whether features were read. If a record has no such counts, the seconds of loading show it: they are 0 if nothing was read.
CREATE VIEW warm_ranks AS
SELECT * EXCLUDE (reads) FROM (
    SELECT *, bool_or(CASE WHEN len(list_filter(map_keys(work), lambda name: starts_with(name, 'features_loaded_'))) > 0
                      THEN len([1 FOR one IN map_entries(work) IF starts_with(one.key, 'features_loaded_') AND one.value <> 0]) > 0
                      ELSE coalesce(times.phases['load'], 0) <> 0 END) OVER (PARTITION BY run, epoch) AS reads,
           arg_max(num_ranks, epoch) OVER (PARTITION BY run) AS last_ranks
    FROM ranks)
WHERE num_ranks = last_ranks AND NOT resumed AND NOT reads;
-- Exchanges of a rank. Vertex data are everything except the gradients' sum. The tag `sizes` carries the lengths of other exchanges and is no payload.
CREATE MACRO exchange_s(traffic) AS coalesce(list_sum([one.value.seconds FOR one IN map_entries(traffic) IF one.key <> 'gradients']), 0);
CREATE MACRO sent_bytes(traffic) AS coalesce(list_sum([one.value.sent_bytes FOR one IN map_entries(traffic) IF one.key <> 'gradients']), 0);
CREATE MACRO payload_rounds(traffic) AS coalesce(list_sum([one.value.rounds FOR one IN map_entries(traffic) IF one.key NOT IN ('gradients', 'sizes')]), 0);
-- Seconds that the loop spent inside collectives of vertex data or waiting for them, and seconds of computation without these. They are within forward and
-- backward. The gradients' sum and barriers are phases of their own. What a background thread exchanged while the loop computed is hidden, in no phase.
CREATE MACRO waited_s(times, traffic) AS exchange_s(traffic) - coalesce(times.hidden['comm'], 0);
CREATE MACRO computation_s(times, traffic) AS coalesce(times.phases['forward'], 0) + coalesce(times.phases['decode'], 0) + coalesce(times.phases['loss'], 0)
    + coalesce(times.phases['backward'], 0) + coalesce(times.phases['update'], 0) - waited_s(times, traffic);

-- The last run of each setting, in order of first appearance.
CREATE MACRO settings() AS TABLE SELECT max(run) AS run, min(run) AS place, label FROM labelled GROUP BY label;
-- Names of the chosen runs in figures: the system, and the values that differ between them, except for the keys in `but`; one line each.
CREATE MACRO names(chosen, but := ['system'], first := ['system']) AS TABLE
SELECT run, string_agg(said, chr(10) ORDER BY key <> 'system', NOT list_contains(first, key), place) AS name
FROM (SELECT *, count(DISTINCT value) OVER (PARTITION BY key) AS num_values FROM labels WHERE list_contains(chosen, run))
WHERE key = 'system' OR (num_values > 1 AND value NOT IN ('null', '–') AND NOT list_contains(but, key))
GROUP BY run;
-- First columns of a row, from the settings of the chosen runs: dataset and ranks, and the other settings that differ.
CREATE MACRO heads() AS TABLE
SELECT run, {'dataset': setting.dataset, 'ranks': setting.ranks, 'fanouts?': CASE WHEN count(DISTINCT setting.fanouts) OVER () > 1 THEN setting.fanouts END,
             'batch?': CASE WHEN count(DISTINCT setting.batch) OVER () > 1 THEN setting.batch END, 'layers?': CASE WHEN count(DISTINCT setting.layers) OVER () > 1 THEN setting.layers END,
             'model?': CASE WHEN count(DISTINCT setting.model) OVER () > 1 THEN setting.model END, 'sampler?': CASE WHEN count(DISTINCT setting.sampler) OVER () > 1 THEN setting.sampler END} AS head
FROM labelled JOIN runs USING (run);
