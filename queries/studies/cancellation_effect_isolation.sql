-- What one part of an abort is worth: push_cancel with the KV released late, and with the slot left unpacked, next to
-- push_cancel alone with the same calls.
-- tables: scenarios, figures
WITH of_policy AS (
    SELECT
        scenario, policy,
        map_from_entries(list((figure, mean) ORDER BY figure)) AS mean,
        map_from_entries(list((figure, low) ORDER BY figure)) AS low,
        map_from_entries(list((figure, high) ORDER BY figure)) AS high
    FROM figures WHERE policy IN ('push_cancel_lazy_kv', 'push_cancel_no_repack') GROUP BY ALL
)
SELECT
    CASE policy WHEN 'push_cancel_lazy_kv' THEN 'KV released late' ELSE 'slot not repacked' END AS effect,
    part, workload, variant, output_tokens_mean, policy,
    mean['stranded_over_push_request_ms'] AS kv_wasted_more_request_ms,
    mean['stranded_over_push_block_s'] AS stranded_more_block_s,
    mean['stranded_over_push_block_s_per_cancel'] AS stranded_more_block_s_per_cancel,
    mean['held_slot_gpu_ms'] AS held_slot_gpu_ms,
    mean['held_slot_gpu_ms_per_cancel'] AS held_slot_gpu_ms_per_cancel,
    mean['survivor_mean_over_push_ms'] AS survivor_mean_later_ms,
    low['survivor_mean_over_push_ms'] AS survivor_mean_later_ms_low,
    high['survivor_mean_over_push_ms'] AS survivor_mean_later_ms_high,
    mean['survivor_p95_over_push_ms'] AS survivor_p95_later_ms,
    low['survivor_p95_over_push_ms'] AS survivor_p95_later_ms_low,
    high['survivor_p95_over_push_ms'] AS survivor_p95_later_ms_high
FROM of_policy JOIN scenarios USING (scenario)
WHERE part IN ('grid', 'output_length')
ORDER BY effect, part, scenarios.position
