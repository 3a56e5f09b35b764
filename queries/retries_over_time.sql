-- name: retries_over_time
-- purpose: When did clients retry, and when did they give up on an attempt?
-- parameters: bin_s=0 (width of a bin in seconds; 0: the least of 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, ... that
--   makes 60 bins or fewer while calls arrive, and 240 or fewer in all)
-- columns: policy, profile, fleet; start_s, end_s = the bin, in seconds from the trace's start; first, retries =
--   attempts sent in it that were a call's first, or a later one; timeouts = attempts that timed out in it; retries_low,
--   retries_high = range over seeds. Means over seeds; bins in which nothing happened are left out
WITH bins AS (
    SELECT bin_width($bin_s, greatest(max(last_s), max(run_s) / 4), 60) AS width_s
    FROM (SELECT max(arrival_s) AS last_s FROM calls), (SELECT max(end_s) AS run_s FROM replicas)
),
happened AS (
    SELECT policy, profile, fleet, seed, start_s AS at_s, attempt = 0 AS first, attempt > 0 AS retry, false AS timeout
    FROM attempts
    UNION ALL
    SELECT policy, profile, fleet, seed, end_s, false, false, true
    FROM attempts WHERE outcome = 'timeout'
),
cells AS (
    SELECT policy, profile, fleet, seed, floor(at_s / width_s) AS bin,
        count(*) FILTER (first) AS first,
        count(*) FILTER (retry) AS retries,
        count(*) FILTER (timeout) AS timeouts
    FROM happened CROSS JOIN bins
    GROUP BY ALL
),
seeds AS (SELECT policy, profile, fleet, count(DISTINCT seed) AS seeds FROM replicas GROUP BY ALL)
SELECT
    policy,
    profile,
    fleet,
    bin * width_s AS start_s,
    (bin + 1) * width_s AS end_s,
    sum(first) / seeds AS first,
    sum(retries) / seeds AS retries,
    CASE WHEN count(*) < seeds THEN 0 ELSE min(retries) END AS retries_low,
    max(retries) AS retries_high,
    sum(timeouts) / seeds AS timeouts
FROM cells CROSS JOIN bins
JOIN seeds USING (policy, profile, fleet)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, bin, width_s, seeds
ORDER BY position, profile, fleet, bin
