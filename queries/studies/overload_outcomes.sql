-- Each policy in each scenario: means over seeds and bootstrap intervals; the time to recovery is the median over seeds,
-- a seed that did not recover counting as longer than any other.
-- tables: scenarios, figures, replays (of overload_by_replay)
WITH of_policy AS (
    SELECT
        scenario, policy, max(seeds) AS seeds,
        map_from_entries(list((figure, mean) ORDER BY figure)) AS mean,
        map_from_entries(list((figure, low) ORDER BY figure)) AS low,
        map_from_entries(list((figure, high) ORDER BY figure)) AS high
    FROM figures GROUP BY ALL
),
times AS (
    SELECT scenario, policy,
        nullif(quantile_disc(coalesce(recovery_s, 'infinity'::DOUBLE), 0.5), 'infinity'::DOUBLE) AS recovery_s
    FROM replays GROUP BY ALL
)
SELECT
    scenarios.* EXCLUDE (scenario, position), policy, seeds,
    mean['delivered_since'] AS delivered_since_overload,
    low['delivered_since'] AS delivered_since_overload_low,
    high['delivered_since'] AS delivered_since_overload_high,
    mean['delivered_before'] AS delivered_before,
    mean['delivered_during'] AS delivered_during,
    mean['delivered_after'] AS delivered_after,
    low['delivered_after'] AS delivered_after_low,
    high['delivered_after'] AS delivered_after_high,
    mean['on_time_after'] AS on_time_after,
    mean['recovered'] AS recovered_share,
    low['recovered'] AS recovered_share_low,
    high['recovered'] AS recovered_share_high,
    times.recovery_s,
    mean['attempts_per_call'] AS attempts_per_call,
    mean['wasted_compute_frac'] AS wasted_compute_frac,
    mean['salvaged_frac'] AS salvaged_frac,
    mean['cancel_window_s'] AS cancel_window_s,
    mean['prefill_progress_at_abort'] AS prefill_progress_at_abort,
    mean['counter_shortfall'] AS counter_shortfall,
    mean['backlog_calls'] AS backlog_calls,
    scenarios.position AS scenario_position, policies.position AS policy_position
FROM of_policy
JOIN scenarios USING (scenario)
JOIN policies USING (policy)
JOIN times USING (scenario, policy)
ORDER BY scenario_position, policy_position
