-- name: retry_amplification
-- purpose: How much load did the retries add?
-- columns: policy, profile, fleet; calls; attempts = sent by clients; executions = made by the gateway; admitted =
--   of them, those that ran; retry_amplification = attempts / calls; execution_amplification = admitted / calls.
--   Means over seeds
WITH c AS (
    SELECT policy, profile, fleet, seed, count(*) AS calls, sum(attempts) AS attempts FROM calls GROUP BY ALL
),
e AS (
    SELECT policy, profile, fleet, seed, count(*) AS executions, count(admitted_s) AS admitted
    FROM executions GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    round(avg(calls))::BIGINT AS calls,
    avg(attempts) AS attempts,
    avg(coalesce(executions, 0)) AS executions,
    avg(coalesce(admitted, 0)) AS admitted,
    avg(attempts / calls ORDER BY seed) AS retry_amplification,
    avg(coalesce(admitted, 0) / calls ORDER BY seed) AS execution_amplification
FROM c LEFT JOIN e USING (policy, profile, fleet, seed)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
