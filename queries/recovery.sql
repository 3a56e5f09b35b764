-- name: recovery
-- purpose: Did the service come back after the overload, and when?
-- parameters: share=0.95 (of the on-time rate before); calls_least=50; seconds_least=30
-- columns: policy, profile, fleet; recovered_share = share of seeds in which there is a time t, the overload's end
--   or later, from which on, to the end of arrivals, the on-time rate of eligible calls is at least `share` of that
--   before the overload, over at least calls_least calls and seconds_least seconds, null where no call was on time
--   before the overload, or too few came after it, to tell; recovery_time_s = Kaplan-Meier median over seeds of the
--   earliest such t, counted from the overload's end, null when half of the seeds did not recover (all others are
--   observed equally long); observed_s = how long it was observed; observed_calls = eligible calls that arrived
--   meanwhile; delivered_call_rate = of all eligible calls from the overload's start on, however late
WITH bounds AS (SELECT max(start_s) FILTER (phase = 'during') AS overload_start_s FROM phases),
cells AS (FROM recoveries($share, $calls_least, $seconds_least)),
since AS (
    SELECT policy, profile, fleet, seed, avg(delivered::INT) AS rate
    FROM calls CROSS JOIN bounds
    WHERE counted AND eligible AND arrival_s >= overload_start_s
    GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    count(recovery_s) / nullif(count(*) FILTER (can_tell), 0) AS recovered_share,
    CASE WHEN 2 * count(recovery_s) >= count(*)
        THEN quantile_disc(coalesce(recovery_s, 'infinity'::DOUBLE), 0.5) END AS recovery_time_s,
    max(observed_s) AS observed_s,
    max(observed_calls) AS observed_calls,
    avg(since.rate ORDER BY seed) AS delivered_call_rate
FROM cells JOIN since USING (policy, profile, fleet, seed)
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
