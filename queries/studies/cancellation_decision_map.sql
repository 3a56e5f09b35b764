-- For each workload and variant: which policy to take and why, and whether the benchmark's advice holds there.
-- The best is the one that saves most GPU time net of its polls; the fallback is the best that polls.
-- Lazy KV does harm unless the whole interval says that those who stay are served sooner by it.
-- tables: summary (of cancellation_summary), effects (of cancellation_effect_isolation)
WITH lazy AS (
    SELECT workload, variant, survivor_mean_later_ms, survivor_mean_later_ms_high, survivor_p95_later_ms,
        kv_wasted_more_request_ms AS lazy_strands
    FROM effects WHERE part = 'grid' AND effect = 'KV released late'
),
best AS (
    SELECT
        workload, variant,
        arg_max(policy, net_saved_gpu_ms) FILTER (policy LIKE 'p%' AND policy <> 'perfect_immediate_cancel') AS take,
        max(net_saved_gpu_ms) FILTER (policy LIKE 'p%' AND policy <> 'perfect_immediate_cancel') AS take_saves,
        arg_max(policy, net_saved_gpu_ms) FILTER (policy LIKE 'poll%') AS fallback,
        max(net_saved_gpu_ms) FILTER (policy LIKE 'poll%') AS fallback_saves,
        max(net_saved_gpu_ms) FILTER (policy = 'push_cancel') AS push_saves,
        max(net_saved_gpu_ms) FILTER (policy = 'poll_every_4') AS poll_4_saves,
        max(net_saved_gpu_ms) FILTER (policy = 'poll_every_8') AS poll_8_saves,
        max(post_cancel_gpu_ms) FILTER (policy = 'no_cancel_handling') AS unhandled,
        max(busy_gpu_ms) FILTER (policy = 'no_cancel_handling') AS busy,
        max(survivor_p95_saved_ms) FILTER (policy = 'push_cancel') AS push_p95_saved,
        max(held_slot_gpu_ms) FILTER (policy = 'push_cancel_no_repack') AS held,
        -- The cost of a look at which polling four times as often saves as much as it costs.
        max(gap_to_push_gpu_ms) FILTER (policy = 'poll_every_4')
            - max(gap_to_push_gpu_ms) FILTER (policy = 'poll_every_1') AS lag_costs,
        max(poll_gpu_ms) FILTER (policy = 'poll_every_1')
            - max(poll_gpu_ms) FILTER (policy = 'poll_every_4') AS looks_cost
    FROM summary GROUP BY ALL
)
SELECT
    workload, variant, batch_cost, model, preemption, cancel_delay_ms,
    CASE WHEN push_saves >= take_saves * 0.999 THEN 'push_cancel' ELSE take END AS take,
    fallback,
    printf('push_cancel saves %s GPU-ms, %.1f%% of the GPU time, and %.0f ms of the survivors'' p95; without push, %s keeps '
        || '%.1f%% of that; a slot that is not repacked costs %s GPU-ms, KV released late strands %s request-ms',
        format('{:,}', push_saves::BIGINT), 100 * push_saves / busy, push_p95_saved, fallback,
        100 * fallback_saves / push_saves, format('{:,}', held::BIGINT), format('{:,}', lazy_strands::BIGINT)) AS why,
    push_saves AS push_saves_gpu_ms,
    push_saves / unhandled AS push_saves_frac_of_waste,
    push_p95_saved AS push_survivor_p95_saved_ms,
    fallback_saves AS fallback_saves_gpu_ms,
    poll_4_saves AS poll_4_saves_gpu_ms,
    poll_8_saves AS poll_8_saves_gpu_ms,
    lazy_strands AS lazy_strands_request_ms,
    2.0 * lag_costs / nullif(looks_cost, 0) AS poll_cost_us_at_which_4_equals_1,
    CASE WHEN push_saves >= fallback_saves THEN 'holds' ELSE 'does not hold' END AS advice_push_first,
    printf('push %s, best poll %s GPU-ms', format('{:,}', push_saves::BIGINT), format('{:,}', fallback_saves::BIGINT))
        AS advice_push_first_found,
    CASE WHEN fallback = 'poll_every_4' THEN 'holds' ELSE 'does not hold' END AS advice_poll_4_fallback,
    printf('%s keeps %.2f%% of what push saves, poll_every_4 %.2f%%', fallback, 100 * fallback_saves / push_saves,
        100 * poll_4_saves / push_saves) AS advice_poll_4_fallback_found,
    CASE WHEN lazy_strands > 0 AND coalesce(survivor_mean_later_ms_high, survivor_mean_later_ms) >= 0 THEN 'holds' ELSE 'does not hold' END AS advice_never_lazy_kv,
    printf('lazy KV strands %s request-ms more; survivors wait %+.1f ms (mean), %+.1f ms (p95)',
        format('{:,}', lazy_strands::BIGINT), survivor_mean_later_ms, survivor_p95_later_ms) AS advice_never_lazy_kv_found
FROM best JOIN (SELECT DISTINCT workload, variant, batch_cost, model, preemption, cancel_delay_ms FROM summary)
    USING (workload, variant)
JOIN lazy USING (workload, variant)
ORDER BY variant <> 'benchmark', variant, workload
