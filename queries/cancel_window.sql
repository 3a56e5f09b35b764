-- name: cancel_window
-- purpose: How long before its client's timeout did an execution that was aborted begin to run?
-- columns: policy, profile, fleet; attempts = all or retries alone; executions = that ran and were aborted, mean over
--   seeds; p10_s, p50_s, p90_s = the timeout's instant less the start of the first step that ran it, over all seeds
WITH windows AS (
    SELECT e.policy, e.profile, e.fleet, e.seed, a.attempt, a.end_s - e.admitted_s AS window_s
    FROM executions AS e
    JOIN attempts AS a USING (policy, profile, fleet, seed, execution_id)
    WHERE e.ended = 'aborted' AND a.outcome = 'timeout'
    -- Where several clients were waiting, it was aborted for the last to give up.
    QUALIFY row_number() OVER (
        PARTITION BY e.policy, e.profile, e.fleet, e.seed, e.execution_id ORDER BY a.end_s DESC, a.attempt_id DESC
    ) = 1
),
seeds AS (SELECT policy, profile, fleet, count(DISTINCT seed) AS seeds FROM replicas GROUP BY ALL),
split AS (
    SELECT 'all' AS attempts, * FROM windows
    UNION ALL
    SELECT 'retries' AS attempts, * FROM windows WHERE attempt > 0
)
SELECT
    policy,
    profile,
    fleet,
    attempts,
    count(*) / any_value(seeds) AS executions,
    quantile_cont(window_s, 0.1) AS p10_s,
    quantile_cont(window_s, 0.5) AS p50_s,
    quantile_cont(window_s, 0.9) AS p90_s
FROM split
JOIN seeds USING (policy, profile, fleet)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, attempts
ORDER BY position, profile, fleet, attempts
