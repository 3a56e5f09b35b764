-- One thing at a time changed, on one engine at one load.
-- tables: outcomes (of overload_outcomes)
SELECT
    part AS swept, value, engine, load, peak, timeout_s, max_attempts, patience_s, cancel_delay_s, prefix_caching,
    backlog_s, drain_s, policy, seeds,
    delivered_since_overload, delivered_since_overload_low, delivered_since_overload_high,
    delivered_during, delivered_after, recovered_share, recovery_s, attempts_per_call, wasted_compute_frac, salvaged_frac,
    cancel_window_s, prefill_progress_at_abort, counter_shortfall
FROM outcomes WHERE part <> 'map'
ORDER BY scenario_position, policy_position
