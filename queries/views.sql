-- views: the tables of a run directory, as the other queries read them.
-- In a plain shell, from inside the run directory:  duckdb -init views.sql
-- Partitions (policy, profile, fleet, seed) are columns of every view.

-- A file of the run: in the directory that the variable `run` names, else in the current one.
CREATE OR REPLACE MACRO place(name) AS coalesce(getvariable('run'), '.') || '/' || name;

-- All cells of a table. A policy may be called 1 or 2024-01-01, and is still a name.
CREATE OR REPLACE MACRO cells(name) AS TABLE
    SELECT * FROM read_parquet(
        place(name || '/**/*.parquet'),
        hive_partitioning = true,
        hive_types = {'policy': VARCHAR, 'profile': VARCHAR, 'fleet': VARCHAR, 'seed': BIGINT}
    );

-- Width of the bins of a chart: what was asked for, or (0) the least round one that makes no more than `most` of them.
CREATE OR REPLACE MACRO bin_width(asked_s, span_s, most) AS coalesce(
    nullif(asked_s, 0),
    list_min([
        w FOR w IN [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400]
        IF span_s / w <= most
    ])::DOUBLE,
    ceil(span_s / most)
);

CREATE OR REPLACE VIEW run AS SELECT * FROM read_parquet(place('run.parquet'));
CREATE OR REPLACE VIEW policies AS SELECT * FROM read_parquet(place('policies.parquet'));
CREATE OR REPLACE VIEW profiles AS SELECT * FROM read_parquet(place('profiles.parquet'));
CREATE OR REPLACE VIEW possible AS SELECT * FROM read_parquet(place('possible.parquet'));
CREATE OR REPLACE VIEW phases AS
    SELECT phase, start_s, coalesce(end_s, 'infinity'::DOUBLE) AS end_s FROM read_parquet(place('phases.parquet'));
CREATE OR REPLACE VIEW observed AS
    SELECT o.*, p.phase
    FROM read_parquet(place('observed.parquet')) AS o
    LEFT JOIN phases AS p ON o.arrival_s >= p.start_s AND o.arrival_s < p.end_s;

-- One row per call. counted: it arrived after the warm-up, and not too close to a cut of the run to have ended.
-- stays: its user does not leave, by the trace.
CREATE OR REPLACE VIEW calls AS
    SELECT
        c.*,
        p.phase,
        c.outcome = 'delivered' AS delivered,
        c.user_cancel_s IS NULL AND c.user_cancel_tokens IS NULL AS stays,
        CASE WHEN c.outcome = 'delivered' THEN c.end_s - c.arrival_s END AS latency_s,
        c.outcome = 'delivered'
            AND c.end_s - c.arrival_s <= coalesce(run.slo_s, c.client_timeout_s, 'infinity'::DOUBLE) AS on_time,
        c.arrival_s >= run.warmup_s
            AND c.arrival_s <= coalesce(run.until_s - coalesce(run.slo_s, c.client_timeout_s, 0), 'infinity'::DOUBLE)
            AS counted
    FROM cells('calls') AS c
    CROSS JOIN run
    LEFT JOIN phases AS p ON c.arrival_s >= p.start_s AND c.arrival_s < p.end_s;

CREATE OR REPLACE VIEW attempts AS SELECT * FROM cells('attempts');
CREATE OR REPLACE VIEW timeline AS SELECT * FROM cells('timeline');
CREATE OR REPLACE VIEW replicas AS SELECT * FROM cells('replicas');

-- One row per execution. Its charge, by what it was good for: busy = useful + the causes of waste + unresolved.
CREATE OR REPLACE VIEW executions AS
    SELECT
        *,
        CASE fate WHEN 'delivered' THEN attended_ns + orphan_ns WHEN 'user_cancelled_stream' THEN attended_ns ELSE 0 END
            AS useful_ns,
        CASE fate WHEN 'lost' THEN attended_ns ELSE 0 END AS abandoned_ns,
        CASE WHEN fate IN ('lost', 'user_cancelled_stream') THEN orphan_ns ELSE 0 END AS post_cancel_ns,
        CASE fate WHEN 'duplicate' THEN attended_ns + orphan_ns ELSE 0 END AS duplicate_ns,
        CASE fate WHEN 'running_at_end' THEN attended_ns + orphan_ns ELSE 0 END AS unresolved_ns
    FROM (
        SELECT
            *,
            attended_prefill_ns + attended_decode_ns AS attended_ns,
            orphan_prefill_ns + orphan_decode_ns AS orphan_ns
        FROM cells('executions')
    );

-- One row per replay, that is per policy, profile, fleet and seed: the figures in which policies are compared.
CREATE OR REPLACE VIEW replays AS
    WITH served AS (
        SELECT
            policy, profile, fleet, seed,
            avg(delivered::INT) FILTER (eligible AND counted) AS delivered_call_rate,
            avg(on_time::INT) FILTER (eligible AND counted) AS on_time_rate,
            quantile_disc(coalesce(latency_s, 'infinity'::DOUBLE), 0.95) FILTER (stays AND counted)
                AS survivor_p95_s,
            sum(attempts)::BIGINT AS attempts
        FROM calls GROUP BY ALL
    ),
    charged AS (
        SELECT
            policy, profile, fleet, seed,
            sum(abandoned_ns + post_cancel_ns + duplicate_ns + recompute_ns + poll_ns + held_slot_ns) AS waste
        FROM executions GROUP BY ALL
    ),
    worked AS (SELECT policy, profile, fleet, seed, sum(busy_ns) AS busy FROM replicas GROUP BY ALL)
    SELECT
        policy, profile, fleet, seed,
        delivered_call_rate,
        on_time_rate,
        coalesce(waste, 0) / nullif(busy, 0) AS wasted_compute_frac,
        coalesce(waste, 0) / 1e9 AS wasted_gpu_s,
        busy / 1e9 AS busy_gpu_s,
        survivor_p95_s,
        attempts
    FROM served
    JOIN worked USING (policy, profile, fleet, seed)
    LEFT JOIN charged USING (policy, profile, fleet, seed);

-- When the service of each replay came back: the earliest time from the overload's end on from which, to the end of
-- arrivals, the on-time rate of eligible calls is at least `share` of that before the overload, over at least so many
-- calls and seconds. can_tell: some call was on time before, and enough came after it.
CREATE OR REPLACE MACRO recoveries(share, calls_least, seconds_least) AS TABLE
    WITH bounds AS (SELECT max(end_s) FILTER (phase = 'during') AS overload_end_s FROM phases),
    eligible_calls AS (
        SELECT policy, profile, fleet, seed, arrival_s, on_time, phase FROM calls WHERE counted AND eligible
    ),
    before AS (
        SELECT policy, profile, fleet, seed, avg(on_time::INT) AS rate
        FROM eligible_calls WHERE phase = 'before' GROUP BY ALL
    ),
    arrivals AS (
        SELECT
            policy, profile, fleet, seed, arrival_s, overload_end_s,
            count(*) OVER later AS calls,
            avg(on_time::INT) OVER later AS rate,
            min(arrival_s) OVER cell AS first_s,
            max(arrival_s) OVER cell AS last_s
        FROM eligible_calls CROSS JOIN bounds
        WHERE arrival_s >= overload_end_s
        WINDOW
            cell AS (PARTITION BY policy, profile, fleet, seed),
            later AS (
                PARTITION BY policy, profile, fleet, seed ORDER BY arrival_s DESC
                RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            )
    ),
    -- From the overload's end on, the same calls arrive as from the first arrival after it.
    tails AS (
        SELECT
            * EXCLUDE (arrival_s, first_s),
            CASE WHEN arrival_s = first_s THEN overload_end_s ELSE arrival_s END AS start_s
        FROM arrivals
    )
    SELECT
        policy, profile, fleet, seed,
        min(t.start_s - overload_end_s) FILTER (
            b.rate > 0 AND t.rate >= share * b.rate AND t.calls >= calls_least AND last_s - t.start_s >= seconds_least
        ) AS recovery_s,
        coalesce(any_value(b.rate) > 0, false)
            AND bool_or(t.calls >= calls_least AND last_s - t.start_s >= seconds_least) AS can_tell,
        max(last_s - overload_end_s) AS observed_s,
        max(t.calls) AS observed_calls
    FROM tails AS t LEFT JOIN before AS b USING (policy, profile, fleet, seed)
    GROUP BY ALL;
