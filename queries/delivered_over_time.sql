-- name: delivered_over_time
-- purpose: When did users get their calls, and when not?
-- parameters: bin_s=0 (width of a bin in seconds; 0: the least of 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, ... that
--   makes 60 bins or fewer, of eight calls or more on average)
-- columns: policy, profile, fleet; start_s, end_s = the bin, in seconds from the trace's start; arrivals = eligible
--   calls that arrived in it; delivered = of them, those that were, whenever; on_time = within the SLO; delivered_rate =
--   delivered / arrivals, _low and _high its range over seeds; on_time_rate = on_time / arrivals. Means over seeds; bins
--   without arrivals are left out
WITH taken AS (SELECT * FROM calls WHERE counted AND eligible),
bins AS (
    SELECT bin_width($bin_s, max(arrival_s), least(60, greatest(calls / 8, 4))) AS width_s
    FROM taken, (SELECT count(*) / count(DISTINCT (policy, profile, fleet, seed)) AS calls FROM taken)
    GROUP BY calls
),
cells AS (
    SELECT
        policy, profile, fleet, seed, floor(arrival_s / width_s) AS bin,
        count(*) AS arrivals,
        count(*) FILTER (delivered) AS delivered,
        count(*) FILTER (on_time) AS on_time
    FROM taken CROSS JOIN bins
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    bin * width_s AS start_s,
    (bin + 1) * width_s AS end_s,
    avg(arrivals) AS arrivals,
    avg(delivered) AS delivered,
    avg(on_time) AS on_time,
    avg(delivered / arrivals ORDER BY seed) AS delivered_rate,
    min(delivered / arrivals) AS delivered_rate_low,
    max(delivered / arrivals) AS delivered_rate_high,
    avg(on_time / arrivals ORDER BY seed) AS on_time_rate
FROM cells CROSS JOIN bins
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, bin, width_s
ORDER BY position, profile, fleet, bin
