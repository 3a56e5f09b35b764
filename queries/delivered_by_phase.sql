-- name: delivered_by_phase
-- purpose: Which calls did users get, before, during and after the overload?
-- columns: policy, profile, fleet; phase; calls = eligible calls that arrived in it (per seed); delivered_call_rate =
--   delivered / calls, mean over seeds, _low and _high its range over seeds; on_time_rate = the same within the SLO
--   (default: the client's timeout for one attempt); too_long = calls rejected because they fit neither the model nor
--   the KV pool (not in calls)
WITH cells AS (
    SELECT
        policy, profile, fleet, seed, phase,
        count(*) FILTER (eligible) AS calls,
        count(*) FILTER (reason = 'rejected:too_long') AS too_long,
        count(*) FILTER (eligible AND delivered) / nullif(count(*) FILTER (eligible), 0) AS rate,
        count(*) FILTER (eligible AND on_time) / nullif(count(*) FILTER (eligible), 0) AS on_time
    FROM calls
    WHERE counted
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    phase,
    round(avg(calls))::BIGINT AS calls,
    avg(rate ORDER BY seed) AS delivered_call_rate,
    min(rate) AS delivered_call_rate_low,
    max(rate) AS delivered_call_rate_high,
    avg(on_time ORDER BY seed) AS on_time_rate,
    round(avg(too_long))::BIGINT AS too_long
FROM cells
JOIN policies USING (policy)
JOIN phases USING (phase)
GROUP BY policy, profile, fleet, phase, policies.position, phases.start_s
ORDER BY policies.position, profile, fleet, phases.start_s
