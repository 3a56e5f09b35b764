-- The benchmark's laws, then its advice under each variant, in one form.
-- tables: laws (of cancellation_laws), advice (of cancellation_advice)
SELECT claim, said, found, verdict, NULL AS where_it_holds FROM laws
UNION ALL
SELECT advice || ' (' || replace(variant, '_', ' ') || ')', 'the benchmark''s advice', found, verdict, where_it_holds
FROM advice
