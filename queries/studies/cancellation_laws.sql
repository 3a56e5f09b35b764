-- The benchmark's laws, in its own setting: what each says, what was found at the worst, and whether it holds.
-- tables: scenarios, figures, sweep (of cancellation_sweep), effects (of cancellation_effect_isolation)
WITH own AS (
    SELECT workload, policy, figure, mean FROM figures JOIN scenarios USING (scenario)
    WHERE part = 'grid' AND variant = 'benchmark'
),
polls AS (
    SELECT workload, policy, replace(policy, 'poll_every_', '')::INT AS tokens,
        max(mean) FILTER (figure = 'decoding_gap_gpu_ms') AS gap,
        max(mean) FILTER (figure = 'poll_gpu_ms') AS looks,
        max(mean) FILTER (figure = 'waste_saved_gpu_ms') AS saved
    FROM own WHERE policy LIKE 'poll%' GROUP BY ALL
),
ratios AS (
    SELECT p.workload, p.tokens,
        abs(p.gap / p.tokens / one.gap - 1) AS gap_off,
        abs(p.looks * p.tokens / one.looks - 1) AS looks_off,
        p.looks / p.saved AS overhead
    FROM polls AS p JOIN polls AS one ON p.workload = one.workload AND one.tokens = 1
),
ordered AS (
    SELECT workload, figure, mean - lead(mean) OVER (PARTITION BY workload, figure ORDER BY place) AS step
    FROM own JOIN (
        VALUES ('perfect_immediate_cancel', 1), ('push_cancel', 2), ('poll_every_1', 3), ('poll_every_2', 4),
            ('poll_every_4', 5), ('poll_every_8', 6), ('no_cancel_handling', 7)
    ) AS places(policy, place) USING (policy)
    WHERE figure = 'waste_saved_gpu_ms'
        OR figure = 'recovery_score_ms' AND policy NOT IN ('poll_every_1', 'poll_every_2')
),
grown AS (
    SELECT
        effect,
        CASE effect WHEN 'KV released late' THEN stranded_more_block_s_per_cancel ELSE held_slot_gpu_ms_per_cancel END
            AS size,
        size - lag(size) OVER (PARTITION BY effect ORDER BY output_tokens_mean) AS more
    FROM effects WHERE part = 'output_length'
),
laws AS (
    SELECT 1 AS position, 'the gap to push is proportional to the poll interval' AS law, '1%' AS bound,
        printf('%.2f%% off at most, over %d workloads', 100 * max(gap_off), count(DISTINCT workload)) AS found,
        max(gap_off) <= 0.01 AS holds FROM ratios
    UNION ALL
    SELECT 2, 'the cost of polling is inversely proportional to the interval', '3%',
        printf('%.2f%% off at most; %.2f%% of what is saved at most', 100 * max(looks_off), 100 * max(overhead)),
        max(looks_off) <= 0.03 FROM ratios
    UNION ALL
    SELECT 3, 'waste saved: oracle >= push >= poll_1 >= poll_2 >= poll_4 >= poll_8 >= none', 'in order',
        printf('%.1f GPU-ms the smallest step down, over %d workloads', min(step), count(DISTINCT workload)),
        min(step) >= 0 FROM ordered WHERE figure = 'waste_saved_gpu_ms'
    UNION ALL
    SELECT 4, 'recovery score: oracle >= push >= poll_4 >= poll_8 >= none', 'in order',
        printf('%.1f GPU-ms the smallest step down, over %d workloads', min(step), count(DISTINCT workload)),
        min(step) >= 0 FROM ordered WHERE figure = 'recovery_score_ms'
    UNION ALL
    SELECT 5, 'KV released late strands more, and more so with longer outputs', '> 0, growing',
        printf('%.2f to %.2f block-s more for each cancel', min(size), max(size)),
        min(size) > 0 AND min(more) > 0 FROM grown WHERE effect = 'KV released late'
    UNION ALL
    SELECT 6, 'a slot that is not repacked costs GPU time, and more so with longer outputs', '> 0, growing',
        printf('%.1f to %.1f GPU-ms for each cancel', min(size), max(size)),
        min(size) > 0 AND min(more) > 0 FROM grown WHERE effect = 'slot not repacked'
    UNION ALL
    SELECT 7, 'survivors wait longer where the slot is not repacked, and no less where KV is released late', '> 0, >= 0',
        printf('%+.1f to %+.1f ms of their mean; %+.1f to %+.1f ms, no interval below 0',
            min(survivor_mean_later_ms) FILTER (effect = 'slot not repacked'),
            max(survivor_mean_later_ms) FILTER (effect = 'slot not repacked'),
            min(survivor_mean_later_ms) FILTER (effect = 'KV released late'),
            max(survivor_mean_later_ms) FILTER (effect = 'KV released late')),
        bool_and(coalesce(
            CASE effect WHEN 'KV released late' THEN survivor_mean_later_ms_high >= 0 ELSE survivor_mean_later_ms > 0 END,
            true
        ))
    FROM effects WHERE part = 'output_length' OR variant = 'benchmark'
    UNION ALL
    SELECT 8, 'the recovery score is positive from the lowest cancel rate on', '> 0 at ' || min(cancel_rate)::VARCHAR,
        printf('%s ms at least', format('{:,}', min(recovery_score_ms)::BIGINT)),
        min(recovery_score_ms) > 0 FROM sweep
    UNION ALL
    SELECT 9, 'the recovery score is near-linear in the cancel rate', 'r2 >= 0.95',
        printf('r2 of %.4f at least', min(linear_r2)), min(linear_r2) >= 0.95 FROM sweep
)
SELECT law AS claim, bound AS said, found, CASE WHEN holds THEN 'holds' ELSE 'does not hold' END AS verdict FROM laws ORDER BY position
