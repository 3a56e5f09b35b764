-- name: goodput
-- purpose: How much was delivered, and delivered on time, for each second and each GPU-hour of the run?
-- columns: policy, profile, fleet; duration_s = seconds from the trace's start to the end of the run, drain included;
--   delivered_calls_per_s, on_time_calls_per_s = calls delivered, and within the SLO, per second of duration_s;
--   on_time_calls_per_s_low, on_time_calls_per_s_high = its range over seeds; delivered_output_tokens_per_s,
--   on_time_output_tokens_per_s = output tokens of those calls per second; on_time_calls_per_gpu_hour = on-time calls
--   per hour of one replica, busy or idle. Means over seeds, of the whole run, warm-up included
WITH served AS (
    SELECT
        policy, profile, fleet, seed,
        count(*) FILTER (delivered) AS delivered,
        count(*) FILTER (on_time) AS on_time,
        coalesce(sum(output_tokens) FILTER (delivered), 0) AS delivered_tokens,
        coalesce(sum(output_tokens) FILTER (on_time), 0) AS on_time_tokens
    FROM calls
    GROUP BY ALL
),
spans AS (
    SELECT policy, profile, fleet, seed, nullif(max(end_s), 0) AS duration, count(*) AS replicas
    FROM replicas
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    avg(duration ORDER BY seed) AS duration_s,
    avg(delivered / duration ORDER BY seed) AS delivered_calls_per_s,
    avg(on_time / duration ORDER BY seed) AS on_time_calls_per_s,
    min(on_time / duration) AS on_time_calls_per_s_low,
    max(on_time / duration) AS on_time_calls_per_s_high,
    avg(delivered_tokens / duration ORDER BY seed) AS delivered_output_tokens_per_s,
    avg(on_time_tokens / duration ORDER BY seed) AS on_time_output_tokens_per_s,
    avg(on_time / duration / replicas * 3600 ORDER BY seed) AS on_time_calls_per_gpu_hour
FROM served
JOIN spans USING (policy, profile, fleet, seed)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
