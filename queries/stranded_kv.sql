-- name: stranded_kv
-- purpose: How much KV memory was held for nobody, and for how long?
-- columns: policy, profile, fleet; kv_block_s = block-seconds held by requests, a shared block once for each
--   holder; stranded_kv_block_s = block-seconds in which no holder of the block had a waiting client;
--   stranded_kv_request_ms = the same counted in executions instead of blocks; stranded_frac = stranded_kv_block_s /
--   kv_block_s. Means over seeds
WITH cells AS (
    SELECT
        policy, profile, fleet, seed,
        sum(kv_block_ns) AS kv_block, sum(stranded_kv_block_ns) AS stranded_block, sum(stranded_kv_ns) AS stranded
    FROM executions
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    avg(kv_block) / 1e9 AS kv_block_s,
    avg(stranded_block) / 1e9 AS stranded_kv_block_s,
    avg(stranded) / 1e6 AS stranded_kv_request_ms,
    avg(stranded_block / nullif(kv_block, 0) ORDER BY seed) AS stranded_frac
FROM cells
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
