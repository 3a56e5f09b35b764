-- name: prefix_cache
-- purpose: How much prefill did the prefix cache save, and how much work of aborted requests did it rescue?
-- columns: policy, profile, fleet; executions = that ran; prompt_tokens = of their prompts; cached_prompt_tokens =
--   tokens found in the cache when they were first admitted: prefill saved; hit_rate = cached / prompt tokens, mean
--   over seeds, hit_rate_low and hit_rate_high its range over seeds; abandoned_gpu_s = GPU-seconds spent on requests
--   whose client gave up; salvaged_gpu_s = of them, what an execution that delivered reused through the cache;
--   salvaged_frac = salvaged / abandoned, null where nothing was abandoned. Means over seeds
WITH cells AS (
    SELECT
        policy, profile, fleet, seed,
        count(admitted_s) AS executions,
        coalesce(sum(prompt_tokens) FILTER (admitted_s IS NOT NULL), 0) AS prompt,
        coalesce(sum(cached_prompt_tokens) FILTER (admitted_s IS NOT NULL), 0) AS cached,
        sum(abandoned_ns) AS abandoned,
        sum(least(salvaged_ns, abandoned_ns)) AS salvaged
    FROM executions
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    sum(executions) / count(*) AS executions,
    sum(prompt) / count(*) AS prompt_tokens,
    sum(cached) / count(*) AS cached_prompt_tokens,
    avg(cached / nullif(prompt, 0) ORDER BY seed) AS hit_rate,
    min(cached / nullif(prompt, 0)) AS hit_rate_low,
    max(cached / nullif(prompt, 0)) AS hit_rate_high,
    sum(abandoned) / count(*) / 1e9 AS abandoned_gpu_s,
    sum(salvaged) / count(*) / 1e9 AS salvaged_gpu_s,
    avg(salvaged / nullif(abandoned, 0) ORDER BY seed) AS salvaged_frac
FROM cells
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
