-- name: worst_calls
-- purpose: Which calls cost most GPU time for nothing, or took most attempts?
-- parameters: limit=10 (calls of each policy); by="waste" (or "attempts")
-- columns: policy, profile, fleet; place = 1 for the worst; call_id; arrival_s = when it arrived, seconds from the
--   trace's start; prompt_tokens, output_tokens; attempts = that its client sent, mean over seeds; executions = that ran
--   for it, mean over seeds; wasted_gpu_s = GPU-seconds of them that were wasted, mean over seeds; delivered_share = of
--   the seeds
WITH waste AS (
    SELECT
        policy, profile, fleet, seed, call_id,
        count(admitted_s) AS executions,
        sum(abandoned_ns + post_cancel_ns + duplicate_ns + recompute_ns + poll_ns + held_slot_ns) AS waste
    FROM executions
    GROUP BY ALL
),
means AS (
    SELECT
        policy, profile, fleet, call_id,
        any_value(arrival_s) AS arrival_s,
        any_value(prompt_tokens) AS prompt_tokens,
        any_value(output_tokens) AS output_tokens,
        sum(attempts) / count(*) AS attempts,
        coalesce(sum(executions), 0) / count(*) AS executions,
        coalesce(sum(waste), 0) / count(*) / 1e9 AS wasted_gpu_s,
        sum(delivered::INT) / count(*) AS delivered_share
    FROM calls
    LEFT JOIN waste USING (policy, profile, fleet, seed, call_id)
    GROUP BY ALL
),
judged AS (
    SELECT
        *,
        CASE $by
            WHEN 'waste' THEN wasted_gpu_s
            WHEN 'attempts' THEN attempts
            ELSE error('by: ' || $by || ' is neither waste nor attempts')
        END AS badness
    FROM means
)
SELECT
    policy,
    profile,
    fleet,
    row_number() OVER (
        PARTITION BY policy, profile, fleet ORDER BY badness DESC, wasted_gpu_s DESC, attempts DESC, call_id
    ) AS place,
    call_id,
    arrival_s,
    prompt_tokens,
    output_tokens,
    attempts,
    executions,
    wasted_gpu_s,
    delivered_share
FROM judged
JOIN policies USING (policy)
QUALIFY place <= $limit
ORDER BY position, profile, fleet, place
