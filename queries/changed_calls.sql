-- name: changed_calls
-- purpose: Which calls fare better, and which worse, than under one policy?
-- parameters: baseline="" (a policy; "" is the log's own, or the first)
-- columns: policy, profile, fleet; baseline = the policy beside which the calls are looked at; of eligible calls, paired
--   by seed: kept = delivered under both; gained = delivered, and not under the baseline; lost = not delivered, but
--   under the baseline; neither; of those delivered under both: earlier, later = by more than 0.1 s; earlier_by_s,
--   later_by_s = median of how much. Means over seeds
WITH chosen AS (
    SELECT CASE
        WHEN $baseline <> '' AND count(*) FILTER (policy = $baseline) = 0
            THEN error('baseline: no policy of this run is called ' || $baseline)
        WHEN $baseline <> '' THEN $baseline
        ELSE coalesce(any_value(as_logged), arg_min(policy, position))
    END AS baseline
    FROM policies CROSS JOIN run
),
pairs AS (
    SELECT
        c.policy, c.profile, c.fleet, c.seed, b.policy AS baseline,
        c.delivered, b.delivered AS before,
        c.latency_s - b.latency_s AS later_s
    FROM calls AS c
    JOIN calls AS b USING (profile, fleet, seed, call_id)
    JOIN chosen ON b.policy = chosen.baseline
    WHERE c.eligible AND b.eligible AND c.counted AND b.counted
),
by_seed AS (
    SELECT
        policy, profile, fleet, baseline, seed,
        count(*) FILTER (delivered AND before) AS kept,
        count(*) FILTER (delivered AND NOT before) AS gained,
        count(*) FILTER (before AND NOT delivered) AS lost,
        count(*) FILTER (NOT before AND NOT delivered) AS neither,
        count(*) FILTER (later_s < -0.1) AS earlier,
        count(*) FILTER (later_s > 0.1) AS later,
        median(-later_s) FILTER (later_s < -0.1) AS earlier_by_s,
        median(later_s) FILTER (later_s > 0.1) AS later_by_s
    FROM pairs GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    baseline,
    avg(kept ORDER BY seed) AS kept,
    avg(gained ORDER BY seed) AS gained,
    avg(lost ORDER BY seed) AS lost,
    avg(neither ORDER BY seed) AS neither,
    avg(earlier ORDER BY seed) AS earlier,
    avg(later ORDER BY seed) AS later,
    avg(earlier_by_s ORDER BY seed) AS earlier_by_s,
    avg(later_by_s ORDER BY seed) AS later_by_s
FROM by_seed
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, baseline, position
ORDER BY position, profile, fleet
