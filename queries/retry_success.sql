-- name: retry_success
-- purpose: Which try brings the response: is it worth trying again?
-- columns: policy, profile, fleet; attempt = 0 for the first try; sent = attempts of that number; ok = of them, those
--   that got their response; ok_rate = ok / sent, mean over seeds, ok_rate_low and ok_rate_high its range over seeds;
--   timed_out, cancelled, rejected = how the others ended. Means over seeds
WITH cells AS (
    SELECT
        policy, profile, fleet, seed, attempt,
        count(*) AS sent,
        count(*) FILTER (outcome = 'ok') AS ok,
        count(*) FILTER (outcome = 'timeout') AS timed_out,
        count(*) FILTER (outcome = 'cancelled') AS cancelled,
        count(*) FILTER (outcome = 'rejected') AS rejected
    FROM attempts
    GROUP BY ALL
),
seeds AS (SELECT policy, profile, fleet, count(DISTINCT seed) AS seeds FROM replicas GROUP BY ALL)
SELECT
    policy,
    profile,
    fleet,
    attempt,
    sum(sent) / any_value(seeds) AS sent,
    sum(ok) / any_value(seeds) AS ok,
    avg(ok / sent ORDER BY seed) AS ok_rate,
    min(ok / sent) AS ok_rate_low,
    max(ok / sent) AS ok_rate_high,
    sum(timed_out) / any_value(seeds) AS timed_out,
    sum(cancelled) / any_value(seeds) AS cancelled,
    sum(rejected) / any_value(seeds) AS rejected
FROM cells
JOIN seeds USING (policy, profile, fleet)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position, attempt
ORDER BY position, profile, fleet, attempt
