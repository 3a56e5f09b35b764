-- name: queue_over_time
-- purpose: How long were the engines' queues, and how full their KV pools?
-- parameters: bin_s=0 (width of a bin in seconds; 0: the least of 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, ... that
--   makes 60 bins or fewer while calls arrive, and 240 or fewer in all)
-- columns: policy, profile, fleet; start_s, end_s = the bin, in seconds from the trace's start; waiting, running =
--   requests in the queues and in the batches of all replicas, mean over the samples of the bin; waiting_low,
--   waiting_high = its range over seeds; used_kv_share = share of the KV blocks in use. Means over seeds; a seed whose
--   run has ended by then counts as empty
WITH bins AS (
    SELECT bin_width($bin_s, greatest(max(last_s), max(run_s) / 4), 60) AS width_s
    FROM (SELECT max(arrival_s) AS last_s FROM calls), (SELECT max(end_s) AS run_s FROM replicas)
),
fleets AS (
    SELECT policy, profile, fleet, seed, sum(waiting) AS waiting, sum(running) AS running,
        sum(used_blocks) / (count(*) * any_value(num_blocks - 1)) AS used, sample_s
    FROM timeline LEFT JOIN profiles USING (profile)
    GROUP BY policy, profile, fleet, seed, sample_s
),
cells AS (
    SELECT policy, profile, fleet, seed, floor(sample_s / width_s) AS bin,
        avg(waiting) AS waiting, avg(running) AS running, avg(used ORDER BY sample_s) AS used
    FROM fleets CROSS JOIN bins
    GROUP BY ALL
),
seeds AS (SELECT policy, profile, fleet, count(DISTINCT seed) AS seeds FROM replicas GROUP BY ALL)
SELECT
    policy,
    profile,
    fleet,
    bin * width_s AS start_s,
    (bin + 1) * width_s AS end_s,
    sum(waiting ORDER BY seed) / seeds AS waiting,
    CASE WHEN count(*) < seeds THEN 0 ELSE min(waiting) END AS waiting_low,
    max(waiting) AS waiting_high,
    sum(running ORDER BY seed) / seeds AS running,
    sum(used ORDER BY seed) / seeds AS used_kv_share
FROM cells CROSS JOIN bins
JOIN seeds USING (policy, profile, fleet)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, bin, width_s, seeds
ORDER BY position, profile, fleet, bin
