-- name: tenants
-- purpose: Which tenants were served, and whose calls wasted the GPU's time?
-- columns: policy, profile, fleet; tenant = who is billed, null where the log does not say; calls = eligible ones;
--   delivered_call_rate = delivered / calls, mean over seeds, delivered_call_rate_low and delivered_call_rate_high its
--   range over seeds; on_time_rate = the same within the SLO; attempts_per_call = attempts sent / calls; gpu_s =
--   GPU-seconds charged to their calls; wasted_gpu_s = of that, wasted; wasted_share = of all that was wasted. Means
--   over seeds
WITH charges AS (
    SELECT
        policy, profile, fleet, seed, call_id,
        sum(abandoned_ns + post_cancel_ns + duplicate_ns + recompute_ns + poll_ns + held_slot_ns) AS waste,
        sum(attended_ns + orphan_ns + recompute_ns + poll_ns + held_slot_ns) AS charge
    FROM executions
    GROUP BY ALL
),
cells AS (
    SELECT
        policy, profile, fleet, seed, tenant,
        count(*) FILTER (eligible AND counted) AS calls,
        avg(delivered::INT) FILTER (eligible AND counted) AS rate,
        avg(on_time::INT) FILTER (eligible AND counted) AS on_time,
        sum(attempts) / count(*) AS attempts,
        coalesce(sum(charge), 0) AS charge,
        coalesce(sum(waste), 0) AS waste
    FROM calls
    JOIN (SELECT call_id, tenant FROM observed) USING (call_id)
    LEFT JOIN charges USING (policy, profile, fleet, seed, call_id)
    GROUP BY ALL
),
shares AS (
    SELECT *, waste / nullif(sum(waste) OVER (PARTITION BY policy, profile, fleet, seed), 0) AS share FROM cells
)
SELECT
    policy,
    profile,
    fleet,
    tenant,
    sum(calls) / count(*) AS calls,
    avg(rate ORDER BY seed) AS delivered_call_rate,
    min(rate) AS delivered_call_rate_low,
    max(rate) AS delivered_call_rate_high,
    avg(on_time ORDER BY seed) AS on_time_rate,
    avg(attempts ORDER BY seed) AS attempts_per_call,
    sum(charge) / count(*) / 1e9 AS gpu_s,
    sum(waste) / count(*) / 1e9 AS wasted_gpu_s,
    avg(share ORDER BY seed) AS wasted_share
FROM shares
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, tenant
ORDER BY position, profile, fleet, tenant NULLS LAST
