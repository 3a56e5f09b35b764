-- The benchmark's advice, checked under each variant, and (variant null) under all of them: on how many workloads it
-- holds, and by how much.
-- tables: decision_map (of cancellation_decision_map)
WITH checked AS (
    SELECT 1 AS position, 'push first' AS advice, *, advice_push_first AS verdict,
        100 * (push_saves_gpu_ms / fallback_saves_gpu_ms - 1) AS number,
        'push saves %.1f%% to %.1f%% more than the best poll' AS words
    FROM decision_map
    UNION ALL
    SELECT 2, 'poll_every_4 where there is no push', *, advice_poll_4_fallback,
        100 * poll_4_saves_gpu_ms / fallback_saves_gpu_ms,
        'poll_every_4 keeps %.1f%% to %.1f%% of what the best poll saves'
    FROM decision_map
    UNION ALL
    SELECT 3, 'never release KV late', *, advice_never_lazy_kv, lazy_strands_request_ms / 1e3,
        'it strands %.1f to %.1f request-seconds more'
    FROM decision_map
)
SELECT
    advice, variant, batch_cost, model, preemption, cancel_delay_ms,
    CASE WHEN bool_and(verdict = 'holds') THEN 'holds' WHEN bool_or(verdict = 'holds') THEN 'holds in this range'
        ELSE 'does not hold' END AS verdict,
    count(*) FILTER (verdict = 'holds') AS workloads_in_which_it_holds, count(*) AS workloads,
    string_agg(DISTINCT workload, ', ' ORDER BY workload) FILTER (verdict = 'holds') AS where_it_holds,
    printf(any_value(words), min(number), max(number)) AS found
FROM checked
GROUP BY GROUPING SETS (
    (position, advice, variant, batch_cost, model, preemption, cancel_delay_ms), (position, advice)
)
ORDER BY position, variant <> 'benchmark' NULLS FIRST, variant NULLS FIRST
