-- name: wasted_by_prompt_length
-- purpose: Which calls, short or long, were not served, and wasted the GPU's time?
-- columns: policy, profile, fleet; prompt_tokens_from, prompt_tokens_below = length of the prompt, in tokens, by powers
--   of two; calls = of that length; delivered_call_rate = of those that are eligible; gpu_s = GPU-seconds charged to
--   them; wasted_gpu_s = of that, wasted; wasted_frac = wasted / charged, mean over seeds, wasted_frac_low and
--   wasted_frac_high its range over seeds. Means over seeds
WITH charges AS (
    SELECT
        policy, profile, fleet, seed, call_id,
        sum(abandoned_ns + post_cancel_ns + duplicate_ns + recompute_ns + poll_ns + held_slot_ns) AS waste,
        sum(attended_ns + orphan_ns + recompute_ns + poll_ns + held_slot_ns) AS charge
    FROM executions
    GROUP BY ALL
),
cells AS (
    SELECT
        policy, profile, fleet, seed,
        CAST(pow(2, floor(log2(greatest(prompt_tokens, 1)))) AS BIGINT) AS tokens,
        count(*) AS calls,
        avg(delivered::INT) FILTER (eligible) AS rate,
        coalesce(sum(charge), 0) AS charge,
        coalesce(sum(waste), 0) AS waste
    FROM calls
    LEFT JOIN charges USING (policy, profile, fleet, seed, call_id)
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    tokens AS prompt_tokens_from,
    2 * tokens AS prompt_tokens_below,
    sum(calls) / count(*) AS calls,
    avg(rate ORDER BY seed) AS delivered_call_rate,
    sum(charge) / count(*) / 1e9 AS gpu_s,
    sum(waste) / count(*) / 1e9 AS wasted_gpu_s,
    avg(waste / nullif(charge, 0) ORDER BY seed) AS wasted_frac,
    min(waste / nullif(charge, 0)) AS wasted_frac_low,
    max(waste / nullif(charge, 0)) AS wasted_frac_high
FROM cells
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, tokens
ORDER BY position, profile, fleet, tokens
