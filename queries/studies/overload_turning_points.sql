-- The load up to which each policy comes back on each engine, in most seeds, and the load from which it does not.
-- tables: outcomes (of overload_outcomes)
WITH loads AS (
    SELECT engine, policy, load, recovered_share >= 0.5 AS back, delivered_since_overload, scenario_position, policy_position
    FROM outcomes WHERE part = 'map'
),
firsts AS (SELECT engine, policy, min(load) FILTER (NOT back) AS metastable_from FROM loads GROUP BY ALL)
SELECT
    engine, policy,
    max(load) FILTER (load < coalesce(metastable_from, 'infinity'::DOUBLE)) AS comes_back_up_to_load,
    any_value(metastable_from) AS metastable_from_load,
    min(delivered_since_overload) FILTER (load < coalesce(metastable_from, 'infinity'::DOUBLE)) AS delivered_least_below,
    max(delivered_since_overload) FILTER (load >= metastable_from) AS delivered_most_beyond
FROM loads JOIN firsts USING (engine, policy)
GROUP BY engine, policy
ORDER BY min(scenario_position), min(policy_position)
