-- name: survivor_latency
-- purpose: How long did the users wait who stayed, the same ones under every policy?
-- columns: policy, profile, fleet; calls = survivors: calls whose trace has no user cancel (per seed); undelivered =
--   of them, those without a response, mean over seeds; undelivered_share = of calls; p50_s, p95_s, p99_s = from the
--   call's arrival to its response, over all seeds, undelivered ones counted as infinite
SELECT
    policy,
    profile,
    fleet,
    round(count(*) / count(DISTINCT seed))::BIGINT AS calls,
    count(*) FILTER (NOT delivered) / count(DISTINCT seed) AS undelivered,
    count(*) FILTER (NOT delivered) / count(*) AS undelivered_share,
    quantile_disc(coalesce(latency_s, 'infinity'::DOUBLE), 0.5) AS p50_s,
    quantile_disc(coalesce(latency_s, 'infinity'::DOUBLE), 0.95) AS p95_s,
    quantile_disc(coalesce(latency_s, 'infinity'::DOUBLE), 0.99) AS p99_s
FROM calls
JOIN policies USING (policy)
WHERE stays AND counted
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
