-- name: replica_balance
-- purpose: Did the gateway spread the work evenly over the replicas?
-- columns: policy, profile, fleet; replica; executions = sent to it; busy_gpu_s = GPU-seconds that it worked;
--   utilisation = busy / duration of the run; busy_share = of the busy time of all replicas, mean over seeds,
--   busy_share_low and busy_share_high its range over seeds (evenly spread: 1 / replicas). Means over seeds
WITH sent AS (
    SELECT policy, profile, fleet, seed, replica, count(*) AS executions FROM executions GROUP BY ALL
),
cells AS (
    SELECT
        policy, profile, fleet, seed, replica, busy_ns, coalesce(executions, 0) AS executions,
        busy_ns / nullif(end_s, 0) / 1e9 AS utilisation,
        busy_ns / nullif(sum(busy_ns) OVER (PARTITION BY policy, profile, fleet, seed), 0) AS share
    FROM replicas
    LEFT JOIN sent USING (policy, profile, fleet, seed, replica)
)
SELECT
    policy,
    profile,
    fleet,
    replica,
    sum(executions) / count(*) AS executions,
    sum(busy_ns) / count(*) / 1e9 AS busy_gpu_s,
    avg(utilisation ORDER BY seed) AS utilisation,
    avg(share ORDER BY seed) AS busy_share,
    min(share) AS busy_share_low,
    max(share) AS busy_share_high
FROM cells
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, replica
ORDER BY position, profile, fleet, replica
