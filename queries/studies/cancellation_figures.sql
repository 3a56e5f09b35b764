-- Figures of each replay, one a row; those next to another policy are of the same scenario and seed.
-- tables: replays (of cancellation_by_replay)
WITH pushed AS (
    SELECT scenario, seed, stranded_kv_request_ms, stranded_kv_block_s, survivor_mean_s, survivor_p95_s
    FROM replays WHERE policy = 'push_cancel'
),
unhandled AS (
    SELECT scenario, seed, post_cancel_gpu_ms, survivor_p95_s FROM replays WHERE policy = 'no_cancel_handling'
),
wide AS (
    SELECT
        r.scenario, r.policy, r.seed,
        r.cancelled::DOUBLE AS cancelled,
        r.busy_gpu_ms, r.wasted_compute_frac, r.post_cancel_gpu_ms, r.held_slot_gpu_ms, r.poll_gpu_ms,
        r.waste_saved_gpu_ms,
        r.waste_saved_gpu_ms - r.poll_gpu_ms AS net_saved_gpu_ms,
        u.post_cancel_gpu_ms AS unhandled_gpu_ms,
        r.recovery_score_ms,
        r.gap_to_push_gpu_ms,
        r.decoding_gap_gpu_ms,
        r.decoding_gap_gpu_ms / nullif(r.decoding_cancels, 0) AS gap_per_cancel_gpu_ms,
        r.stranded_kv_request_ms, r.stranded_kv_block_s,
        r.survivor_mean_s, r.survivor_p95_s,
        r.preemptions::DOUBLE AS preemptions,
        CASE WHEN isfinite(u.survivor_p95_s) AND isfinite(r.survivor_p95_s)
            THEN (u.survivor_p95_s - r.survivor_p95_s) * 1e3 END AS survivor_p95_saved_ms,
        CASE WHEN isfinite(p.survivor_p95_s) AND isfinite(r.survivor_p95_s)
            THEN (r.survivor_p95_s - p.survivor_p95_s) * 1e3 END AS survivor_p95_over_push_ms,
        CASE WHEN isfinite(p.survivor_mean_s) AND isfinite(r.survivor_mean_s)
            THEN (r.survivor_mean_s - p.survivor_mean_s) * 1e3 END AS survivor_mean_over_push_ms,
        r.stranded_kv_request_ms - p.stranded_kv_request_ms AS stranded_over_push_request_ms,
        r.stranded_kv_block_s - p.stranded_kv_block_s AS stranded_over_push_block_s,
        (r.stranded_kv_block_s - p.stranded_kv_block_s) / nullif(r.cancelled, 0) AS stranded_over_push_block_s_per_cancel,
        r.held_slot_gpu_ms / nullif(r.cancelled, 0) AS held_slot_gpu_ms_per_cancel
    FROM replays AS r
    LEFT JOIN pushed AS p USING (scenario, seed)
    LEFT JOIN unhandled AS u USING (scenario, seed)
)
SELECT scenario, policy, seed, figure, value
FROM (UNPIVOT wide ON COLUMNS(* EXCLUDE (scenario, policy, seed)) INTO NAME figure VALUE value)
ORDER BY ALL
