-- Figures of each replay, one a row.
-- tables: replays (of overload_by_replay)
WITH wide AS (
    SELECT
        scenario, policy, seed,
        delivered_before, delivered_during, delivered_after, delivered_since, on_time_after,
        recovered::INT::DOUBLE AS recovered,
        recovery_s, attempts_per_call, wasted_compute_frac, salvaged_frac, cancel_window_s, prefill_progress_at_abort,
        counter_shortfall,
        backlog_calls::DOUBLE AS backlog_calls,
        drain_s AS drained_s
    FROM replays
)
SELECT scenario, policy, seed, figure, value
FROM (UNPIVOT wide ON COLUMNS(* EXCLUDE (scenario, policy, seed)) INTO NAME figure VALUE value)
ORDER BY ALL
