-- name: recovery_score
-- purpose: How much GPU time does noticing that users have left save, next to not noticing it?
-- columns: policy, profile, fleet; cancelled = calls whose user left, mean over seeds; marginal_gpu_ms = by how many
--   milliseconds the steps would have been shorter without the executions of these calls, mean over seeds; poll_gpu_ms =
--   GPU time of checking whether clients are still there; recovery_score_ms = marginal time under no_cancel_handling
--   less the same under this policy with the same seed, less its poll_gpu_ms, mean over seeds, recovery_score_ms_low
--   and recovery_score_ms_high its range over seeds, null in a run without the policy no_cancel_handling
WITH left_calls AS (
    SELECT policy, profile, fleet, seed, call_id FROM calls WHERE outcome = 'cancelled'
),
counts AS (SELECT policy, profile, fleet, seed, count(*) AS cancelled FROM left_calls GROUP BY ALL),
marginal AS (
    SELECT policy, profile, fleet, seed, sum(marginal_ns) AS marginal
    FROM executions SEMI JOIN left_calls USING (policy, profile, fleet, seed, call_id)
    GROUP BY ALL
),
polls AS (SELECT policy, profile, fleet, seed, sum(poll_ns) AS poll FROM executions GROUP BY ALL),
cells AS (
    SELECT
        policy, profile, fleet, seed,
        coalesce(cancelled, 0) AS cancelled, coalesce(marginal, 0) AS marginal, coalesce(poll, 0) AS poll
    FROM (SELECT DISTINCT policy, profile, fleet, seed FROM calls)
    LEFT JOIN counts USING (policy, profile, fleet, seed)
    LEFT JOIN marginal USING (policy, profile, fleet, seed)
    LEFT JOIN polls USING (policy, profile, fleet, seed)
),
unhandled AS (
    SELECT profile, fleet, seed, marginal AS unhandled FROM cells WHERE policy = 'no_cancel_handling'
)
SELECT
    policy,
    profile,
    fleet,
    sum(cancelled) / count(*) AS cancelled,
    sum(marginal) / count(*) / 1e6 AS marginal_gpu_ms,
    sum(poll) / count(*) / 1e6 AS poll_gpu_ms,
    sum(unhandled - marginal - poll) / count(unhandled) / 1e6 AS recovery_score_ms,
    min(unhandled - marginal - poll) / 1e6 AS recovery_score_ms_low,
    max(unhandled - marginal - poll) / 1e6 AS recovery_score_ms_high
FROM cells
LEFT JOIN unhandled USING (profile, fleet, seed)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
