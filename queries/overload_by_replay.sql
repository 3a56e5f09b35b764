-- name: overload_by_replay
-- purpose: What did each replay make of an overload: who was served in it, and did the service come back?
-- parameters: share=0.95 (of the on-time rate before); calls_least=50; seconds_least=30
-- columns: policy, profile, fleet, seed; delivered_before, delivered_during, delivered_after = share of eligible calls
--   that were delivered, by the phase in which they arrived; delivered_since = the same from the overload's start on,
--   however late; on_time_after = of those that arrived after it, within the SLO; recovered = whether service came back,
--   as `recovery` has it, null where it cannot be told; recovery_s = how long after the overload's end; attempts_per_call
--   = attempts that clients sent / calls; wasted_compute_frac = waste / busy; salvaged_frac = of the GPU time that went
--   into requests whose client gave up, the share that a delivered one reused through the prefix cache; cancel_window_s =
--   the timeout's instant less the start of the first step, median over retries that ran and were aborted;
--   prefill_progress_at_abort = share of the prompt in the KV cache when an execution that had been admitted was aborted,
--   mean; counter_shortfall = share of the computed prompt tokens that the engine's counter never shows; backlog_calls =
--   calls that had arrived and not ended at the overload's end; drain_s = from the overload's end until the last call of
--   those that arrived before it had ended
WITH bounds AS (
    SELECT
        max(start_s) FILTER (phase = 'during') AS overload_start_s,
        max(end_s) FILTER (phase = 'during') AS overload_end_s
    FROM phases
),
served AS (
    SELECT
        policy, profile, fleet, seed,
        avg(delivered::INT) FILTER (phase = 'before') AS delivered_before,
        avg(delivered::INT) FILTER (phase = 'during') AS delivered_during,
        avg(delivered::INT) FILTER (phase = 'after') AS delivered_after,
        avg(delivered::INT) FILTER (arrival_s >= overload_start_s) AS delivered_since,
        avg(on_time::INT) FILTER (phase = 'after') AS on_time_after,
        count(*) FILTER (arrival_s < overload_end_s AND coalesce(end_s, 'infinity'::DOUBLE) > overload_end_s)
            AS backlog_calls,
        max(end_s - overload_end_s) FILTER (arrival_s < overload_end_s) AS drain_s
    FROM calls CROSS JOIN bounds
    WHERE counted AND eligible
    GROUP BY ALL
),
tried AS (SELECT policy, profile, fleet, seed, sum(attempts) / count(*) AS attempts_per_call FROM calls GROUP BY ALL),
ran AS (
    SELECT
        policy, profile, fleet, seed,
        sum(least(salvaged_ns, abandoned_ns)) / nullif(sum(abandoned_ns), 0) AS salvaged_frac,
        avg(least((cached_prompt_tokens + computed_prompt_tokens) / prompt_tokens, 1) ORDER BY execution_id)
            FILTER (ended = 'aborted') AS prefill_progress_at_abort,
        1 - coalesce(sum(prompt_tokens - cached_prompt_tokens) FILTER (first_output_s IS NOT NULL), 0)
            / nullif(sum(computed_prompt_tokens), 0) AS counter_shortfall
    FROM executions
    GROUP BY ALL
),
windows AS (
    SELECT e.policy, e.profile, e.fleet, e.seed, median(a.end_s - e.admitted_s) AS cancel_window_s
    FROM executions AS e JOIN attempts AS a USING (policy, profile, fleet, seed, execution_id)
    WHERE e.ended = 'aborted' AND a.outcome = 'timeout' AND a.attempt > 0
    GROUP BY ALL
)
SELECT
    policy, profile, fleet, seed,
    delivered_before, delivered_during, delivered_after, delivered_since, on_time_after,
    CASE WHEN can_tell THEN recovery_s IS NOT NULL END AS recovered,
    recovery_s, attempts_per_call, wasted_compute_frac, salvaged_frac, cancel_window_s, prefill_progress_at_abort,
    counter_shortfall, backlog_calls, drain_s
FROM replays
JOIN policies USING (policy)
LEFT JOIN served USING (policy, profile, fleet, seed)
LEFT JOIN tried USING (policy, profile, fleet, seed)
LEFT JOIN ran USING (policy, profile, fleet, seed)
LEFT JOIN windows USING (policy, profile, fleet, seed)
LEFT JOIN recoveries($share, $calls_least, $seconds_least) USING (policy, profile, fleet, seed)
ORDER BY position, profile, fleet, seed
