-- The recovery score over the cancel rate, and how straight it is: r2 of its line.
-- tables: scenarios, figures
WITH scores AS (
    SELECT
        workload, variant, cancel_rate, policy,
        max(mean) FILTER (figure = 'recovery_score_ms') AS recovery_score_ms,
        max(low) FILTER (figure = 'recovery_score_ms') AS recovery_score_ms_low,
        max(high) FILTER (figure = 'recovery_score_ms') AS recovery_score_ms_high,
        max(mean) FILTER (figure = 'net_saved_gpu_ms') AS net_saved_gpu_ms,
        max(mean) FILTER (figure = 'cancelled') AS cancelled
    FROM figures JOIN scenarios USING (scenario)
    WHERE part = 'cancel_rate' AND policy <> 'no_cancel_handling'
    GROUP BY ALL
)
SELECT
    *,
    recovery_score_ms / cancelled AS score_per_cancel_ms,
    regr_r2(recovery_score_ms, cancel_rate) OVER line AS linear_r2,
    regr_r2(net_saved_gpu_ms, cancel_rate) OVER line AS net_saved_linear_r2
FROM scores JOIN policies USING (policy)
WINDOW line AS (PARTITION BY workload, policy)
ORDER BY workload, policies.position, cancel_rate
