-- name: duplicates
-- purpose: How often did the engines compute the same call again, and what did coalescing spare them?
-- columns: policy, profile, fleet; calls; executions = that ran; executions_per_call = executions / calls, mean over
--   seeds, executions_per_call_low and executions_per_call_high its range over seeds; calls_run_again = calls for which
--   more than one execution ran; finished_for_nobody = executions that computed the whole response which no client
--   received; finished_for_nobody_gpu_s = GPU-seconds of these; joined_attempts = attempts that joined an execution
--   another attempt had started; joined_and_delivered = of them, those that got their response from it. Means over seeds
WITH c AS (SELECT policy, profile, fleet, seed, count(*) AS calls FROM calls GROUP BY ALL),
of_calls AS (
    SELECT
        policy, profile, fleet, seed, call_id,
        count(admitted_s) AS ran,
        count(*) FILTER (ended = 'finished' AND fate <> 'delivered') AS for_nobody,
        sum(attended_ns + orphan_ns) FILTER (ended = 'finished' AND fate <> 'delivered') AS for_nobody_ns
    FROM executions
    GROUP BY ALL
),
e AS (
    SELECT
        policy, profile, fleet, seed,
        sum(ran) AS ran,
        count(*) FILTER (ran > 1) AS again,
        sum(for_nobody) AS for_nobody,
        sum(for_nobody_ns) AS for_nobody_ns
    FROM of_calls
    GROUP BY ALL
),
a AS (
    SELECT
        policy, profile, fleet, seed,
        count(*) FILTER (joined) AS joined,
        count(*) FILTER (joined AND outcome = 'ok') AS joined_ok
    FROM attempts
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    sum(calls) / count(*) AS calls,
    coalesce(sum(ran), 0) / count(*) AS executions,
    avg(coalesce(ran, 0) / calls ORDER BY seed) AS executions_per_call,
    min(coalesce(ran, 0) / calls) AS executions_per_call_low,
    max(coalesce(ran, 0) / calls) AS executions_per_call_high,
    coalesce(sum(again), 0) / count(*) AS calls_run_again,
    coalesce(sum(for_nobody), 0) / count(*) AS finished_for_nobody,
    coalesce(sum(for_nobody_ns), 0) / count(*) / 1e9 AS finished_for_nobody_gpu_s,
    coalesce(sum(joined), 0) / count(*) AS joined_attempts,
    coalesce(sum(joined_ok), 0) / count(*) AS joined_and_delivered
FROM c
LEFT JOIN e USING (policy, profile, fleet, seed)
LEFT JOIN a USING (policy, profile, fleet, seed)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
