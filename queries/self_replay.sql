-- name: self_replay
-- purpose: Does a replay of the log's own policy show what the log shows?
-- columns: profile, fleet; figure; observed = in the log; predicted = mean over seeds of the policy that the log was
--   recorded under; low, high = its range over seeds
WITH seen AS (
    SELECT 'delivered ' || phase AS figure, min(arrival_s) AS place, avg((observed_status = 'ok')::INT) AS value
    FROM observed GROUP BY phase
    UNION ALL
    SELECT 'attempts', 1e300, sum(observed_attempts) FROM observed
    UNION ALL
    SELECT 'latency p50 s', 2e300, quantile_cont(observed_e2e_s, 0.5) FROM observed
    UNION ALL
    SELECT 'latency p95 s', 3e300, quantile_cont(observed_e2e_s, 0.95) FROM observed
),
own AS (SELECT calls.* FROM calls JOIN run ON calls.policy = run.as_logged),
replayed AS (
    SELECT profile, fleet, seed, 'delivered ' || phase AS figure, avg(delivered::INT) AS value FROM own GROUP BY ALL
    UNION ALL
    SELECT profile, fleet, seed, 'attempts', sum(attempts) FROM own GROUP BY ALL
    UNION ALL
    SELECT profile, fleet, seed, 'latency p50 s', quantile_cont(latency_s, 0.5) FROM own GROUP BY ALL
    UNION ALL
    SELECT profile, fleet, seed, 'latency p95 s', quantile_cont(latency_s, 0.95) FROM own GROUP BY ALL
)
SELECT
    profile,
    fleet,
    figure,
    any_value(seen.value) AS observed,
    avg(replayed.value ORDER BY seed) AS predicted,
    min(replayed.value) AS low,
    max(replayed.value) AS high
FROM seen JOIN replayed USING (figure)
WHERE seen.value IS NOT NULL
GROUP BY profile, fleet, figure, place
ORDER BY profile, fleet, place
