-- name: timeouts
-- purpose: Where were requests when their clients' patience ran out: in the queue, in prefill, or decoding?
-- columns: policy, profile, fleet; state = queued (no step had run it), prefilling (no token yet), decoding (tokens were
--   coming), answered (complete, but not yet with the client) or no_execution (the gateway never made one); timeouts =
--   attempts that timed out in it, mean over seeds; share = of the policy's timeouts, mean over seeds, share_low and
--   share_high its range over seeds; state_for_p50_s = median seconds that the attempt's execution had been in that
--   state, over all seeds
WITH timed_out AS (
    SELECT
        a.policy, a.profile, a.fleet, a.seed, a.end_s,
        CASE
            WHEN e.execution_id IS NULL THEN 'no_execution'
            WHEN e.admitted_s IS NULL OR e.admitted_s >= a.end_s THEN 'queued'
            WHEN e.first_output_s IS NULL OR e.first_output_s >= a.end_s THEN 'prefilling'
            WHEN e.ended <> 'finished' OR e.end_s >= a.end_s THEN 'decoding'
            ELSE 'answered'
        END AS state,
        CASE state
            WHEN 'queued' THEN e.queued_s
            WHEN 'prefilling' THEN e.admitted_s
            WHEN 'decoding' THEN e.first_output_s
            WHEN 'answered' THEN e.end_s
        END AS since_s
    FROM attempts AS a
    LEFT JOIN executions AS e USING (policy, profile, fleet, seed, execution_id)
    WHERE a.outcome = 'timeout'
),
states AS (SELECT DISTINCT policy, profile, fleet, state FROM timed_out),
cells AS (
    SELECT policy, profile, fleet, seed, count(*) AS total FROM timed_out GROUP BY ALL
),
counts AS (
    SELECT policy, profile, fleet, seed, state, count(*) AS timeouts FROM timed_out GROUP BY ALL
),
-- A seed without timeouts in a state counts as zero.
shares AS (
    SELECT
        policy, profile, fleet, state,
        sum(coalesce(timeouts, 0)) / any_value(seeds) AS timeouts,
        avg(coalesce(timeouts, 0) / total ORDER BY seed) AS share,
        min(coalesce(timeouts, 0) / total) AS share_low,
        max(coalesce(timeouts, 0) / total) AS share_high
    FROM states
    JOIN cells USING (policy, profile, fleet)
    LEFT JOIN counts USING (policy, profile, fleet, seed, state)
    JOIN (SELECT policy, profile, fleet, count(DISTINCT seed) AS seeds FROM replicas GROUP BY ALL)
        USING (policy, profile, fleet)
    GROUP BY ALL
),
waits AS (
    SELECT policy, profile, fleet, state, quantile_cont(end_s - since_s, 0.5) AS state_for_p50_s
    FROM timed_out
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    state,
    timeouts,
    share,
    share_low,
    share_high,
    state_for_p50_s
FROM shares
JOIN waits USING (policy, profile, fleet, state)
JOIN policies USING (policy)
ORDER BY
    position, profile, fleet,
    list_position(['no_execution', 'queued', 'prefilling', 'decoding', 'answered'], state)
