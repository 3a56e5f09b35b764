-- name: cancellation_by_replay
-- purpose: What did each way of noticing that users have left cost and save, replay by replay?
-- parameters: outputs_left=8 (outputs that a call must still have had for `decoding_gap_gpu_ms`)
-- columns: policy, profile, fleet, seed; cancelled = calls whose user left; busy_gpu_ms = GPU time in milliseconds;
--   wasted_gpu_ms = of it wasted; wasted_compute_frac = wasted / busy; post_cancel_gpu_ms, held_slot_gpu_ms, poll_gpu_ms
--   = of it on requests of users who had left, on slots held after their abort, on looks at whether users are there;
--   waste_saved_gpu_ms = post_cancel_gpu_ms and held_slot_gpu_ms under no_cancel_handling with the same seed less the same
--   under this policy, null without that policy; recovery_score_ms = by how much less the requests of cancelled calls
--   lengthened the steps than under no_cancel_handling, less poll_gpu_ms; gap_to_push_gpu_ms = what push_cancel saves of
--   waste less what this policy saves; decoding_cancels = calls that push_cancel aborted while they decoded, with at
--   least outputs_left outputs to come, and this policy before they ended; decoding_gap_gpu_ms = the gap to push_cancel
--   on these alone; stranded_kv_request_ms, stranded_kv_block_s = KV held for nobody, in requests and in
--   blocks; survivor_mean_s, survivor_p95_s = latency of the calls whose user never leaves, undelivered ones infinite;
--   preemptions = of all executions
WITH left_calls AS (
    SELECT policy, profile, fleet, seed, call_id FROM calls WHERE outcome = 'cancelled'
),
cost AS (
    SELECT
        policy, profile, fleet, seed, call_id,
        sum(marginal_ns) AS marginal,
        sum(post_cancel_ns + held_slot_ns) AS wasted,
        bool_or(ended = 'aborted' AND first_output_s IS NOT NULL) AS while_decoding,
        sum(computed_output_tokens) AS outputs
    FROM executions
    GROUP BY ALL
),
cancelled AS (
    SELECT policy, profile, fleet, seed, count(*) AS calls, sum(marginal) AS marginal
    FROM left_calls LEFT JOIN cost USING (policy, profile, fleet, seed, call_id)
    GROUP BY ALL
),
-- The calls in which policies differ by their lag alone: push cut them off while they decoded.
decoding AS (
    SELECT profile, fleet, seed, call_id, p.wasted
    FROM cost AS p JOIN calls AS c USING (policy, profile, fleet, seed, call_id)
    WHERE policy = 'push_cancel' AND c.outcome = 'cancelled' AND p.while_decoding
        AND c.output_tokens - p.outputs >= $outputs_left
),
gaps AS (
    SELECT c.policy, profile, fleet, seed, count(*) AS calls, sum(c.wasted - d.wasted) AS gap
    FROM cost AS c SEMI JOIN left_calls USING (policy, profile, fleet, seed, call_id)
    JOIN decoding AS d USING (profile, fleet, seed, call_id)
    GROUP BY ALL
),
ran AS (
    SELECT
        policy, profile, fleet, seed,
        sum(post_cancel_ns) AS post_cancel, sum(held_slot_ns) AS held_slot, sum(poll_ns) AS poll,
        sum(stranded_kv_ns) AS stranded, sum(stranded_kv_block_ns) AS stranded_block, sum(preemptions) AS preemptions
    FROM executions
    GROUP BY ALL
),
survivors AS (
    SELECT policy, profile, fleet, seed, avg(coalesce(latency_s, 'infinity'::DOUBLE) ORDER BY call_id) AS mean_s
    FROM calls WHERE user_cancel_s IS NULL AND counted
    GROUP BY ALL
),
cells AS (
    SELECT
        r.*, post_cancel, held_slot, poll, stranded, stranded_block, preemptions, mean_s,
        coalesce(c.calls, 0) AS cancelled, coalesce(c.marginal, 0) AS marginal, gaps.calls AS decoding_cancels, gap
    FROM replays AS r
    LEFT JOIN ran USING (policy, profile, fleet, seed)
    LEFT JOIN cancelled AS c USING (policy, profile, fleet, seed)
    LEFT JOIN gaps USING (policy, profile, fleet, seed)
    LEFT JOIN survivors USING (policy, profile, fleet, seed)
),
unhandled AS (
    SELECT profile, fleet, seed, marginal AS marginal_of_none, post_cancel + held_slot AS waste_of_none
    FROM cells WHERE policy = 'no_cancel_handling'
),
pushed AS (
    SELECT profile, fleet, seed, post_cancel + held_slot AS waste_of_push FROM cells WHERE policy = 'push_cancel'
)
SELECT
    policy, profile, fleet, seed,
    cancelled,
    busy_gpu_s * 1e3 AS busy_gpu_ms,
    wasted_gpu_s * 1e3 AS wasted_gpu_ms,
    wasted_compute_frac,
    post_cancel / 1e6 AS post_cancel_gpu_ms,
    held_slot / 1e6 AS held_slot_gpu_ms,
    poll / 1e6 AS poll_gpu_ms,
    (waste_of_none - post_cancel - held_slot) / 1e6 AS waste_saved_gpu_ms,
    (marginal_of_none - marginal - poll) / 1e6 AS recovery_score_ms,
    (post_cancel + held_slot - waste_of_push) / 1e6 AS gap_to_push_gpu_ms,
    decoding_cancels,
    gap / 1e6 AS decoding_gap_gpu_ms,
    stranded / 1e6 AS stranded_kv_request_ms,
    stranded_block / 1e9 AS stranded_kv_block_s,
    mean_s AS survivor_mean_s,
    survivor_p95_s,
    preemptions
FROM cells
LEFT JOIN unhandled USING (profile, fleet, seed)
LEFT JOIN pushed USING (profile, fleet, seed)
JOIN policies USING (policy)
ORDER BY position, profile, fleet, seed
