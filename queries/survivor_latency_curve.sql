-- name: survivor_latency_curve
-- purpose: What share of the users who stayed had their response within a given time?
-- columns: policy, profile, fleet; within_s = 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, ... seconds, from where the first
--   had its response to where the last one has, none where nobody had one; calls = survivors: calls whose trace has no
--   user cancel (per seed); delivered_share = of them, those that had their response within_s after their arrival, over
--   all seeds
WITH taken AS (SELECT * FROM calls WHERE stays AND counted),
marks AS (
    SELECT mark::DOUBLE AS within_s
    FROM (SELECT min(latency_s) AS first_s, max(latency_s) AS last_s FROM taken)
    CROSS JOIN unnest([0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400])
        AS marks (mark)
    QUALIFY mark >= first_s AND coalesce(lag(mark) OVER (ORDER BY mark), 0) < last_s
),
answered AS (
    SELECT policy, profile, fleet, within_s, count(*) AS calls
    FROM taken ASOF JOIN marks ON latency_s <= within_s
    GROUP BY ALL
),
survivors AS (
    SELECT policy, profile, fleet, count(*) AS calls, count(DISTINCT seed) AS seeds FROM taken GROUP BY ALL
)
SELECT
    policy,
    profile,
    fleet,
    within_s,
    round(s.calls / seeds)::BIGINT AS calls,
    sum(coalesce(a.calls, 0)) OVER (PARTITION BY policy, profile, fleet ORDER BY within_s) / s.calls AS delivered_share
FROM survivors AS s CROSS JOIN marks
LEFT JOIN answered AS a USING (policy, profile, fleet, within_s)
JOIN policies USING (policy)
ORDER BY position, profile, fleet, within_s
