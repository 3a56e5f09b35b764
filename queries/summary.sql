-- name: summary
-- purpose: The headline figures of each policy.
-- columns: policy, profile, fleet; delivered_call_rate, on_time_rate = of eligible calls; wasted_compute_frac = waste
--   / busy; gpu_s_per_delivered_call = busy GPU-seconds / delivered calls; counter_shortfall = see counter_gap;
--   retry_amplification = attempts / calls; stranded_kv_block_s = see stranded_kv; survivor_p50_s, _p95_s, _p99_s =
--   latency over the calls whose user never leaves, undelivered ones counted as infinite, and undelivered = their
--   number; unresolved = calls that had not ended when the run was cut, counted as not delivered. Means over seeds;
--   latencies over all seeds; calls of the warm-up, and those that a cut leaves no time, are left out of rates and
--   latencies
WITH c AS (
    SELECT
        policy, profile, fleet, seed,
        avg(delivered::INT) FILTER (eligible AND counted) AS delivered_rate,
        avg(on_time::INT) FILTER (eligible AND counted) AS on_time_rate,
        count(*) FILTER (delivered) AS delivered,
        sum(attempts) / count(*) AS amplification,
        count(*) FILTER (stays AND counted AND NOT delivered) AS undelivered,
        count(*) FILTER (counted AND outcome = 'unresolved') AS unresolved
    FROM calls GROUP BY ALL
),
e AS (
    SELECT
        policy, profile, fleet, seed,
        sum(abandoned_ns + post_cancel_ns + duplicate_ns + recompute_ns + poll_ns + held_slot_ns) AS waste,
        sum(prompt_tokens - cached_prompt_tokens) FILTER (first_output_s IS NOT NULL) AS shown,
        sum(computed_prompt_tokens) AS computed,
        sum(stranded_kv_block_ns) AS stranded
    FROM executions GROUP BY ALL
),
busy AS (SELECT policy, profile, fleet, seed, sum(busy_ns) AS busy FROM replicas GROUP BY ALL),
survivors AS (
    SELECT
        policy, profile, fleet,
        quantile_disc(coalesce(latency_s, 'infinity'::DOUBLE), 0.5) AS p50,
        quantile_disc(coalesce(latency_s, 'infinity'::DOUBLE), 0.95) AS p95,
        quantile_disc(coalesce(latency_s, 'infinity'::DOUBLE), 0.99) AS p99
    FROM calls WHERE stays AND counted GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    avg(delivered_rate ORDER BY seed) AS delivered_call_rate,
    avg(on_time_rate ORDER BY seed) AS on_time_rate,
    avg(coalesce(waste, 0) / nullif(busy, 0) ORDER BY seed) AS wasted_compute_frac,
    avg(busy / 1e9 / nullif(delivered, 0) ORDER BY seed) AS gpu_s_per_delivered_call,
    avg(1 - coalesce(shown, 0) / nullif(computed, 0) ORDER BY seed) AS counter_shortfall,
    avg(amplification ORDER BY seed) AS retry_amplification,
    avg(coalesce(stranded, 0)) / 1e9 AS stranded_kv_block_s,
    any_value(p50) AS survivor_p50_s,
    any_value(p95) AS survivor_p95_s,
    any_value(p99) AS survivor_p99_s,
    avg(undelivered) AS undelivered,
    avg(unresolved) AS unresolved
FROM c
JOIN busy USING (policy, profile, fleet, seed)
LEFT JOIN e USING (policy, profile, fleet, seed)
LEFT JOIN survivors USING (policy, profile, fleet)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
