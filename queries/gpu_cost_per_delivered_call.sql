-- name: gpu_cost_per_delivered_call
-- purpose: What does a delivered call cost in GPU time, and in money?
-- parameters: gpu_hour_price=2 (of one replica, in any currency)
-- columns: policy, profile, fleet; delivered = calls, mean over seeds; gpu_s_per_delivered_call = busy GPU-seconds /
--   delivered calls, mean over seeds, gpu_s_per_delivered_call_low and gpu_s_per_delivered_call_high its range over
--   seeds; useful_gpu_s_per_delivered_call, wasted_gpu_s_per_delivered_call = the parts of it that went into responses,
--   and into nothing; price_per_1000_delivered_calls = of the busy time, at gpu_hour_price. Null where no call was
--   delivered. Of the whole run, warm-up included
WITH served AS (
    SELECT policy, profile, fleet, seed, count(*) FILTER (delivered) AS delivered FROM calls GROUP BY ALL
),
parts AS (
    SELECT
        policy, profile, fleet, seed,
        sum(useful_ns) AS useful,
        sum(abandoned_ns + post_cancel_ns + duplicate_ns + recompute_ns + poll_ns + held_slot_ns) AS waste
    FROM executions
    GROUP BY ALL
),
busy AS (SELECT policy, profile, fleet, seed, sum(busy_ns) AS busy FROM replicas GROUP BY ALL),
cells AS (
    SELECT
        policy, profile, fleet, seed, delivered,
        busy / 1e9 / nullif(delivered, 0) AS busy_s,
        coalesce(useful, 0) / 1e9 / nullif(delivered, 0) AS useful_s,
        coalesce(waste, 0) / 1e9 / nullif(delivered, 0) AS wasted_s
    FROM served
    JOIN busy USING (policy, profile, fleet, seed)
    LEFT JOIN parts USING (policy, profile, fleet, seed)
)
SELECT
    policy,
    profile,
    fleet,
    sum(delivered) / count(*) AS delivered,
    avg(busy_s ORDER BY seed) AS gpu_s_per_delivered_call,
    min(busy_s) AS gpu_s_per_delivered_call_low,
    max(busy_s) AS gpu_s_per_delivered_call_high,
    avg(useful_s ORDER BY seed) AS useful_gpu_s_per_delivered_call,
    avg(wasted_s ORDER BY seed) AS wasted_gpu_s_per_delivered_call,
    avg(busy_s ORDER BY seed) / 3600 * 1000 * $gpu_hour_price AS price_per_1000_delivered_calls
FROM cells
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
