-- The benchmark's laws, then its advice under all variants, in one form.
-- tables: laws (of cancellation_laws), advice (of cancellation_advice)
WITH by_variant AS (
    SELECT
        advice,
        string_agg(
            printf('%s %d of %d', replace(variant, '_', ' '), workloads_in_which_it_holds, workloads), ', '
            ORDER BY variant <> 'benchmark', variant
        ) || ' workloads' AS where_it_holds
    FROM advice WHERE variant IS NOT NULL GROUP BY advice
),
whole AS (
    SELECT
        advice AS claim, 'the benchmark''s advice' AS said, found, verdict,
        list_position(['push first', 'poll_every_4 where there is no push', 'never release KV late'], advice) AS position
    FROM advice WHERE variant IS NULL
)
SELECT claim, said, found, verdict, NULL AS where_it_holds FROM laws
UNION ALL
(SELECT claim, said, found, verdict, where_it_holds FROM whole JOIN by_variant ON advice = claim ORDER BY position)
