-- name: outcomes
-- purpose: How did the calls end, and why did those fail that failed?
-- columns: policy, profile, fleet; outcome = delivered, cancelled (the user left), failed or unresolved (the run ended);
--   reason = why it failed, null for the others; calls = calls that ended so, mean over seeds; share = of all calls,
--   mean over seeds, share_low and share_high its range over seeds
WITH ended AS (
    SELECT policy, profile, fleet, seed, outcome, reason, count(*) AS calls FROM calls WHERE counted GROUP BY ALL
),
totals AS (SELECT policy, profile, fleet, seed, sum(calls) AS total FROM ended GROUP BY ALL),
ways AS (SELECT DISTINCT policy, profile, fleet, outcome, reason FROM ended),
-- A seed in which no call ended so counts as zero.
cells AS (
    SELECT w.*, t.seed, t.total, coalesce(e.calls, 0) AS calls
    FROM ways AS w
    JOIN totals AS t USING (policy, profile, fleet)
    LEFT JOIN ended AS e
        ON (e.policy, e.profile, e.fleet, e.seed, e.outcome) = (w.policy, w.profile, w.fleet, t.seed, w.outcome)
        AND e.reason IS NOT DISTINCT FROM w.reason
)
SELECT
    policy,
    profile,
    fleet,
    outcome,
    reason,
    sum(calls) / count(*) AS calls,
    avg(calls / total ORDER BY seed) AS share,
    min(calls / total) AS share_low,
    max(calls / total) AS share_high
FROM cells
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, outcome, reason
ORDER BY
    position, profile, fleet,
    list_position(['delivered', 'cancelled', 'failed', 'unresolved'], outcome), outcome, reason NULLS FIRST
