-- name: preemptions
-- purpose: How often did the engine run out of KV blocks and start a request again, and what did that cost?
-- columns: policy, profile, fleet; preemptions = times a running request was put back; preempted_executions =
--   executions to which that happened; preempted_share = of the executions that ran, mean over seeds,
--   preempted_share_low and preempted_share_high its range over seeds; recomputed_tokens = tokens computed again for
--   it; recompute_gpu_s = GPU-seconds of that; recompute_frac = the same as a share of busy GPU time. Means over seeds
WITH cells AS (
    SELECT
        policy, profile, fleet, seed,
        sum(preemptions) AS preemptions,
        count(*) FILTER (preemptions > 0) AS preempted,
        count(admitted_s) AS executions,
        sum(recomputed_tokens) AS tokens,
        sum(recompute_ns) AS recompute
    FROM executions
    GROUP BY ALL
),
busy AS (SELECT policy, profile, fleet, seed, sum(busy_ns) AS busy FROM replicas GROUP BY ALL)
SELECT
    policy,
    profile,
    fleet,
    coalesce(sum(preemptions), 0) / count(*) AS preemptions,
    coalesce(sum(preempted), 0) / count(*) AS preempted_executions,
    avg(preempted / nullif(executions, 0) ORDER BY seed) AS preempted_share,
    min(preempted / nullif(executions, 0)) AS preempted_share_low,
    max(preempted / nullif(executions, 0)) AS preempted_share_high,
    coalesce(sum(tokens), 0) / count(*) AS recomputed_tokens,
    coalesce(sum(recompute), 0) / count(*) / 1e9 AS recompute_gpu_s,
    avg(coalesce(recompute, 0) / nullif(busy, 0) ORDER BY seed) AS recompute_frac
FROM busy
LEFT JOIN cells USING (policy, profile, fleet, seed)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
