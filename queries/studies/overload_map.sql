-- Policy x load on each engine: who was delivered, and whether the service came back.
-- tables: outcomes (of overload_outcomes), turning_points (of overload_turning_points)
SELECT
    engine, load, policy, seeds, capacity_per_s,
    delivered_since_overload, delivered_since_overload_low, delivered_since_overload_high,
    delivered_before, delivered_during, delivered_after, delivered_after_low, delivered_after_high,
    on_time_after, recovered_share, recovered_share_low, recovered_share_high, recovery_s,
    load >= coalesce(metastable_from_load, 'infinity'::DOUBLE) AS metastable,
    attempts_per_call, wasted_compute_frac, cancel_window_s, prefill_progress_at_abort, counter_shortfall
FROM outcomes JOIN turning_points USING (engine, policy)
WHERE part = 'map'
ORDER BY scenario_position, policy_position
