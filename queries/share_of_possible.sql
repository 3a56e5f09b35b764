-- name: share_of_possible
-- purpose: How much of what any policy could have delivered did each deliver?
-- columns: policy, profile, fleet; phase = of the calls that arrived in it, null: of all; calls = eligible calls;
--   delivered = of them; possible_delivered = no policy delivers more, were its clients as patient as the most patient
--   of this run (docs/possible.md); share_delivered = delivered / possible_delivered, share_delivered_low,
--   share_delivered_high = its range over seeds; on_time, possible_on_time, share_on_time, share_on_time_low,
--   share_on_time_high = the same of calls delivered within the SLO. Means over seeds
WITH served AS (
    SELECT
        policy, profile, fleet, seed, phase,
        count(*) FILTER (delivered) AS delivered,
        count(*) FILTER (on_time) AS on_time
    FROM calls
    WHERE eligible AND counted
    GROUP BY GROUPING SETS ((policy, profile, fleet, seed, phase), (policy, profile, fleet, seed))
),
beside AS (
    SELECT
        s.policy, profile, fleet, seed, p.phase,
        p.calls,
        coalesce(s.delivered, 0) AS delivered,
        p.delivered AS most,
        coalesce(s.on_time, 0) AS on_time,
        p.on_time AS most_on_time
    FROM possible AS p
    JOIN served AS s USING (profile, fleet, seed)
    WHERE p.phase IS NOT DISTINCT FROM s.phase
)
SELECT
    policy,
    profile,
    fleet,
    phase,
    avg(calls ORDER BY seed) AS calls,
    avg(delivered ORDER BY seed) AS delivered,
    avg(most ORDER BY seed) AS possible_delivered,
    avg(delivered / nullif(most, 0) ORDER BY seed) AS share_delivered,
    min(delivered / nullif(most, 0)) AS share_delivered_low,
    max(delivered / nullif(most, 0)) AS share_delivered_high,
    avg(on_time ORDER BY seed) AS on_time,
    avg(most_on_time ORDER BY seed) AS possible_on_time,
    avg(on_time / nullif(most_on_time, 0) ORDER BY seed) AS share_on_time,
    min(on_time / nullif(most_on_time, 0)) AS share_on_time_low,
    max(on_time / nullif(most_on_time, 0)) AS share_on_time_high
FROM beside
JOIN policies USING (policy)
LEFT JOIN phases USING (phase)
GROUP BY policy, profile, fleet, phase, policies.position, phases.start_s
ORDER BY policies.position, profile, fleet, phases.start_s NULLS FIRST
