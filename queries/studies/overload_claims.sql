-- The paper's claims beside what was found. Its figures of cancellation are held against every load of the map at which
-- cancellation alone does not come back in most seeds: means over the replays that do not.
-- tables: scenarios, replays (of overload_by_replay), outcomes (of overload_outcomes), turning_points (of
--   overload_turning_points)
WITH cells AS (SELECT * FROM outcomes WHERE part = 'map'),
lost AS (
    SELECT
        engine, load,
        avg(delivered_after) FILTER (NOT recovered) AS delivered_after,
        avg(cancel_window_s) FILTER (NOT recovered) AS cancel_window_s,
        avg(prefill_progress_at_abort) FILTER (NOT recovered) AS prefill_progress_at_abort,
        avg(counter_shortfall) FILTER (NOT recovered) AS counter_shortfall
    FROM replays JOIN scenarios USING (scenario)
    WHERE part = 'map' AND policy = 'cancel'
    GROUP BY engine, load
    HAVING 2 * count(*) FILTER (NOT recovered) >= count(*)
),
claimed(position, claim, paper, figure, least, most, unit, factor) AS (
    VALUES
        (2, 'cancellation alone delivers few of the calls that arrive after the overload', '12% to 38%',
            'delivered_after', 0.12, 0.38, '%%', 100),
        (3, 'retries that ran began to prefill just before their timeout', 'less than 0.5 s',
            'cancel_window_s', 0.0, 0.5, ' s', 1),
        (4, 'aborted executions had computed most of their prompt', '79% to 85%',
            'prefill_progress_at_abort', 0.79, 0.85, '%%', 100),
        (5, 'the prompt-token counter misses much of what is computed', '1/3 to 1/2',
            'counter_shortfall', 1 / 3, 0.5, '%%', 100)
),
found AS (
    SELECT c.*, v.engine, v.load, v.value, v.value BETWEEN least AND most AS inside
    FROM claimed AS c JOIN (
        UNPIVOT lost
        ON delivered_after, cancel_window_s, prefill_progress_at_abort, counter_shortfall INTO NAME figure VALUE value
    ) AS v USING (figure)
),
by_engine AS (
    SELECT
        position, engine,
        CASE WHEN count(*) FILTER (inside) = 0 THEN engine || ' nowhere'
            WHEN min(load) FILTER (inside) = max(load) FILTER (inside)
                THEN printf('%s at %g', engine, min(load) FILTER (inside))
            ELSE printf('%s at %g to %g', engine, min(load) FILTER (inside), max(load) FILTER (inside)) END AS range
    FROM found GROUP BY position, engine
),
ranges AS (
    SELECT position, string_agg(range, ', ' ORDER BY list_position(['small', 'medium', 'large'], engine)) AS range
    FROM by_engine GROUP BY position
),
numeric AS (
    SELECT
        position, claim, paper,
        printf('%.3g' || unit || ' to %.3g' || unit, factor * min(value), factor * max(value)) AS found,
        CASE WHEN bool_and(inside) THEN 'every load at which it does not come back'
            ELSE any_value(range) END AS holds_where,
        count(*) FILTER (inside) AS inside, count(*) AS all_of
    FROM found JOIN ranges USING (position)
    GROUP BY position, claim, paper, unit, factor
),
never AS (
    SELECT
        1 AS position, 'with retries, cancellation alone never restores service' AS claim, 'no run recovers' AS paper,
        printf('recovers in 0%% of seeds at %d of %d loads', count(*) FILTER (recovered_share = 0), count(*)) AS found,
        string_agg(DISTINCT printf('%s from a load of %g on', engine, metastable_from_load), ', ')
            FILTER (metastable_from_load IS NOT NULL) AS holds_where,
        count(*) FILTER (recovered_share = 0) AS inside, count(*) AS all_of
    FROM cells JOIN turning_points USING (engine, policy) WHERE policy = 'cancel'
),
budget AS (
    SELECT
        6, 'a retry budget restores service and leaves calls of the overload undelivered', 'both',
        printf('recovers at %d of %d loads; %.0f%% to %.0f%% of the calls of the overload delivered',
            count(*) FILTER (recovered_share >= 0.5), count(*), 100 * min(delivered_during), 100 * max(delivered_during)),
        printf('loads up to %g', max(load) FILTER (recovered_share >= 0.5)),
        count(*) FILTER (recovered_share >= 0.5 AND delivered_during < 0.99), count(*)
    FROM cells WHERE policy = 'retry_budget'
),
patient AS (SELECT * FROM outcomes WHERE part = 'patience_s' AND policy = 'coalesce'),
coalesced AS (
    SELECT
        7, 'coalescing delivers every call from the overload on', 'every call',
        printf('%.1f%% at the least where patience exceeds backlog / (capacity - load) = %g s',
            100 * min(delivered_since_overload) FILTER (patience_s > drain_s), any_value(drain_s)),
        printf('patience of %g s and more', min(patience_s) FILTER (delivered_since_overload >= 0.995)),
        count(*) FILTER (patience_s > drain_s AND delivered_since_overload >= 0.995),
        count(*) FILTER (patience_s > drain_s)
    FROM patient
),
impatient AS (
    SELECT
        8, 'and not where patience is shorter than the backlog', 'not claimed',
        printf('%.0f%% to %.0f%% where patience is below backlog / capacity = %g s',
            100 * min(delivered_since_overload) FILTER (patience_s < backlog_s),
            100 * max(delivered_since_overload) FILTER (patience_s < backlog_s), any_value(backlog_s)),
        printf('patience of %g s and less', max(patience_s) FILTER (delivered_since_overload < 0.99)),
        count(*) FILTER (patience_s < backlog_s AND delivered_since_overload < 0.99),
        count(*) FILTER (patience_s < backlog_s)
    FROM patient
),
aborted AS (
    SELECT
        9, 'coalescing is worth nothing where the abort has come before the retry', 'delivers if not aborted',
        printf('coalesce_cancel delivers %+.1f points at most next to cancel, coalesce %+.0f at least',
            100 * max(abs(aborting.delivered_since_overload - cancel.delivered_since_overload)),
            100 * min(kept.delivered_since_overload - cancel.delivered_since_overload)),
        'every load and engine',
        count(*) FILTER (abs(aborting.delivered_since_overload - cancel.delivered_since_overload) < 0.02), count(*)
    FROM cells AS aborting
    JOIN cells AS cancel ON aborting.engine = cancel.engine AND aborting.load = cancel.load AND cancel.policy = 'cancel'
    JOIN cells AS kept ON aborting.engine = kept.engine AND aborting.load = kept.load AND kept.policy = 'coalesce'
    WHERE aborting.policy = 'coalesce_cancel'
),
caching AS (
    SELECT
        10, 'with prefix caching a retry resumes what its aborted predecessor computed', 'not claimed: measured without',
        printf('%.0f%% to %.0f%% of abandoned GPU time is used again; delivered since the overload %+.0f to %+.0f points',
            100 * min(cached.salvaged_frac), 100 * max(cached.salvaged_frac),
            100 * min(cached.delivered_since_overload - plain.delivered_since_overload),
            100 * max(cached.delivered_since_overload - plain.delivered_since_overload)),
        string_agg(printf('%d attempts: %.0f%% instead of %.0f%%', cached.max_attempts, 100 * cached.delivered_since_overload,
            100 * plain.delivered_since_overload), ', ' ORDER BY cached.max_attempts),
        count(*) FILTER (cached.salvaged_frac > 0), count(*)
    FROM outcomes AS cached JOIN outcomes AS plain
        ON plain.part = 'max_attempts' AND plain.max_attempts = cached.max_attempts AND plain.policy = cached.policy
    WHERE cached.part = 'cached_attempts' AND cached.policy = 'cancel'
)
SELECT
    claim, paper AS said, found,
    CASE WHEN inside = all_of THEN 'holds' WHEN inside > 0 THEN 'holds in this range' ELSE 'does not hold' END AS verdict,
    coalesce(holds_where, 'nowhere') AS where_it_holds,
    inside AS scenarios_in_which_it_holds, all_of AS scenarios
FROM (
    FROM never UNION ALL FROM numeric UNION ALL FROM budget UNION ALL FROM coalesced UNION ALL FROM impatient
    UNION ALL FROM aborted UNION ALL FROM caching
)
ORDER BY position
