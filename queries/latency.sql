-- name: latency
-- purpose: How long did the users wait whose calls were delivered, and how many waited for nothing?
-- columns: policy, profile, fleet; phase = in which the call arrived; delivered, undelivered = calls, mean over seeds:
--   a policy that gives up slow calls looks fast, so read them beside the latencies; ttft_p50_s, ttft_p95_s,
--   ttft_p99_s = seconds from the call's arrival to the first token of the attempt that delivered it, delivered calls
--   of all seeds; e2e_p50_s, e2e_p95_s, e2e_p99_s = seconds from its arrival to the whole response
WITH seeds AS (SELECT policy, profile, fleet, count(DISTINCT seed) AS seeds FROM calls GROUP BY ALL)
SELECT
    policy,
    profile,
    fleet,
    phase,
    count(*) FILTER (delivered) / any_value(seeds) AS delivered,
    count(*) FILTER (NOT delivered) / any_value(seeds) AS undelivered,
    quantile_cont(first_token_s - arrival_s, 0.5) FILTER (delivered) AS ttft_p50_s,
    quantile_cont(first_token_s - arrival_s, 0.95) FILTER (delivered) AS ttft_p95_s,
    quantile_cont(first_token_s - arrival_s, 0.99) FILTER (delivered) AS ttft_p99_s,
    quantile_cont(latency_s, 0.5) AS e2e_p50_s,
    quantile_cont(latency_s, 0.95) AS e2e_p95_s,
    quantile_cont(latency_s, 0.99) AS e2e_p99_s
FROM calls
JOIN seeds USING (policy, profile, fleet)
JOIN policies USING (policy)
JOIN phases USING (phase)
WHERE counted
GROUP BY policy, profile, fleet, phase, policies.position, phases.start_s
ORDER BY policies.position, profile, fleet, phases.start_s
