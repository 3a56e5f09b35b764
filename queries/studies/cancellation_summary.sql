-- Every policy on every workload under every variant: means over seeds, with bootstrap intervals of what is compared.
-- tables: scenarios, figures
WITH of_policy AS (
    SELECT
        scenario, policy,
        map_from_entries(list((figure, mean) ORDER BY figure)) AS mean,
        map_from_entries(list((figure, low) ORDER BY figure)) AS low,
        map_from_entries(list((figure, high) ORDER BY figure)) AS high
    FROM figures GROUP BY ALL
)
SELECT
    workload, variant, batch_cost, model, preemption, cancel_delay_ms, cancel_rate, policy,
    mean['cancelled'] AS cancelled,
    mean['busy_gpu_ms'] AS busy_gpu_ms,
    mean['wasted_compute_frac'] AS wasted_compute_frac,
    mean['post_cancel_gpu_ms'] AS post_cancel_gpu_ms,
    mean['held_slot_gpu_ms'] AS held_slot_gpu_ms,
    mean['waste_saved_gpu_ms'] AS waste_saved_gpu_ms,
    low['waste_saved_gpu_ms'] AS waste_saved_gpu_ms_low,
    high['waste_saved_gpu_ms'] AS waste_saved_gpu_ms_high,
    mean['poll_gpu_ms'] AS poll_gpu_ms,
    mean['poll_gpu_ms'] / nullif(mean['waste_saved_gpu_ms'], 0) AS overhead_frac_of_saved,
    mean['net_saved_gpu_ms'] AS net_saved_gpu_ms,
    mean['gap_to_push_gpu_ms'] AS gap_to_push_gpu_ms,
    mean['gap_per_cancel_gpu_ms'] AS gap_per_cancel_gpu_ms,
    mean['recovery_score_ms'] AS recovery_score_ms,
    low['recovery_score_ms'] AS recovery_score_ms_low,
    high['recovery_score_ms'] AS recovery_score_ms_high,
    mean['stranded_kv_request_ms'] AS kv_wasted_request_ms,
    mean['stranded_kv_block_s'] AS stranded_kv_block_s,
    mean['survivor_mean_s'] AS survivor_mean_s,
    mean['survivor_p95_s'] AS survivor_p95_s,
    mean['survivor_p95_saved_ms'] AS survivor_p95_saved_ms,
    low['survivor_p95_saved_ms'] AS survivor_p95_saved_ms_low,
    high['survivor_p95_saved_ms'] AS survivor_p95_saved_ms_high,
    mean['preemptions'] AS preemptions
FROM of_policy JOIN scenarios USING (scenario) JOIN policies USING (policy)
WHERE part = 'grid'
ORDER BY scenarios.position, policies.position
