-- name: policy_differences
-- purpose: What does each policy change, next to the one the log was recorded under?
-- parameters: baseline="" (the policy to compare with; if empty, the log's own, or the first where that is not known)
-- columns: policy, profile, fleet; baseline = the policy it is compared with; seeds = replays of both with the same
--   seed, hence the same calls and waits, whose figures are subtracted; delivered_difference = delivered_call_rate less
--   the baseline's, on_time_difference = the same of on_time_rate, wasted_frac_difference = of wasted_compute_frac,
--   wasted_gpu_s_difference = of wasted GPU-seconds, p95_s_difference = of survivor_p95_s, null where either has none
--   (too many calls undelivered), attempts_difference = of attempts; each the mean over seeds, with its range as
--   delivered_difference_low, delivered_difference_high, on_time_difference_low, on_time_difference_high,
--   wasted_frac_difference_low, wasted_frac_difference_high, wasted_gpu_s_difference_low, wasted_gpu_s_difference_high,
--   p95_s_difference_low, p95_s_difference_high, attempts_difference_low, attempts_difference_high
WITH chosen AS (
    SELECT CASE
        WHEN $baseline <> '' AND count(*) FILTER (policy = $baseline) = 0
            THEN error('baseline: no policy of this run is called ' || $baseline)
        WHEN $baseline <> '' THEN $baseline
        ELSE coalesce(any_value(as_logged), arg_min(policy, position))
    END AS baseline
    FROM policies CROSS JOIN run
),
base AS (SELECT replays.* FROM replays JOIN chosen ON replays.policy = chosen.baseline),
pairs AS (
    SELECT
        r.policy, r.profile, r.fleet, r.seed, base.policy AS baseline,
        r.delivered_call_rate - base.delivered_call_rate AS delivered,
        r.on_time_rate - base.on_time_rate AS on_time,
        r.wasted_compute_frac - base.wasted_compute_frac AS wasted_frac,
        r.wasted_gpu_s - base.wasted_gpu_s AS wasted,
        CASE WHEN isfinite(r.survivor_p95_s) AND isfinite(base.survivor_p95_s)
            THEN r.survivor_p95_s - base.survivor_p95_s END AS p95,
        r.attempts - base.attempts AS attempts
    FROM replays AS r JOIN base USING (profile, fleet, seed)
)
SELECT
    policy,
    profile,
    fleet,
    baseline,
    count(*) AS seeds,
    avg(delivered ORDER BY seed) AS delivered_difference,
    min(delivered) AS delivered_difference_low,
    max(delivered) AS delivered_difference_high,
    avg(on_time ORDER BY seed) AS on_time_difference,
    min(on_time) AS on_time_difference_low,
    max(on_time) AS on_time_difference_high,
    avg(wasted_frac ORDER BY seed) AS wasted_frac_difference,
    min(wasted_frac) AS wasted_frac_difference_low,
    max(wasted_frac) AS wasted_frac_difference_high,
    avg(wasted ORDER BY seed) AS wasted_gpu_s_difference,
    min(wasted) AS wasted_gpu_s_difference_low,
    max(wasted) AS wasted_gpu_s_difference_high,
    avg(p95 ORDER BY seed) AS p95_s_difference,
    min(p95) AS p95_s_difference_low,
    max(p95) AS p95_s_difference_high,
    sum(attempts) / count(*) AS attempts_difference,
    min(attempts) AS attempts_difference_low,
    max(attempts) AS attempts_difference_high
FROM pairs
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, baseline
ORDER BY position, profile, fleet
