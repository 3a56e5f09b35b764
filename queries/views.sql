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

CREATE OR REPLACE VIEW run AS SELECT * FROM read_parquet(place('run.parquet'));
CREATE OR REPLACE VIEW policies AS SELECT * FROM read_parquet(place('policies.parquet'));
CREATE OR REPLACE VIEW profiles AS SELECT * FROM read_parquet(place('profiles.parquet'));
CREATE OR REPLACE VIEW phases AS
    SELECT phase, start_s, coalesce(end_s, 'infinity'::DOUBLE) AS end_s FROM read_parquet(place('phases.parquet'));
CREATE OR REPLACE VIEW observed AS
    SELECT o.*, p.phase
    FROM read_parquet(place('observed.parquet')) AS o
    LEFT JOIN phases AS p ON o.arrival_s >= p.start_s AND o.arrival_s < p.end_s;

-- One row per call. counted: it arrived after the warm-up, and not too close to a cut of the run to have ended.
CREATE OR REPLACE VIEW calls AS
    SELECT
        c.*,
        p.phase,
        c.outcome = 'delivered' AS delivered,
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
