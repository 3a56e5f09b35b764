-- name: counter_gap
-- purpose: What would the engine's own prompt-token counter have shown of the work that was done?
-- columns: policy, profile, fleet; computed_prompt_tokens = prompt tokens computed, recomputation included;
--   counter_prompt_tokens = what prompt_tokens_total shows: a whole prompt, cached tokens included, once, at its first
--   output; counter_shortfall = 1 - (prompt less cached tokens of executions with a first output) / computed;
--   prefill_progress_at_abort = share of the prompt in the KV cache when an execution that had been admitted was
--   aborted, mean over those executions; prefill_progress_before_first_token = the same over those without a first
--   output. Means over seeds
WITH cells AS (
    SELECT
        policy, profile, fleet, seed,
        sum(computed_prompt_tokens) AS computed,
        coalesce(sum(prompt_tokens - cached_prompt_tokens) FILTER (first_output_s IS NOT NULL), 0) AS shown,
        coalesce(sum(prompt_tokens) FILTER (first_output_s IS NOT NULL), 0) AS counter,
        avg(least((cached_prompt_tokens + computed_prompt_tokens) / prompt_tokens, 1) ORDER BY execution_id)
            FILTER (ended = 'aborted') AS progress,
        avg(least((cached_prompt_tokens + computed_prompt_tokens) / prompt_tokens, 1) ORDER BY execution_id)
            FILTER (ended = 'aborted' AND first_output_s IS NULL) AS progress_before_first
    FROM executions
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    round(avg(computed))::BIGINT AS computed_prompt_tokens,
    round(avg(counter))::BIGINT AS counter_prompt_tokens,
    avg(1 - shown / nullif(computed, 0) ORDER BY seed) AS counter_shortfall,
    avg(progress ORDER BY seed) AS prefill_progress_at_abort,
    avg(progress_before_first ORDER BY seed) AS prefill_progress_before_first_token
FROM cells
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
