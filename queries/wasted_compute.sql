-- name: wasted_compute
-- purpose: What was the GPU's time spent on, and what of it was wasted?
-- columns: policy, profile, fleet; *_gpu_s = GPU-seconds, mean over seeds: busy, useful (went into a response that was
--   delivered, or into a stream while its user was there), and wasted by cause: abandoned (its client gave up),
--   post_cancel (nobody was waiting any more), duplicate (the call was delivered by another execution), recompute (done
--   again after a preemption), poll, held_slot; unresolved (the run ended); salvaged = what of abandoned was reused
--   through the prefix cache by an execution that delivered; abandoned_net = abandoned less that; wasted_compute_frac =
--   waste (of abandoned all of it) / busy, mean over seeds, _low and _high its range over seeds. Of the whole run,
--   warm-up included
WITH cells AS (
    SELECT
        policy, profile, fleet, seed,
        sum(useful_ns) AS useful, sum(abandoned_ns) AS abandoned, sum(post_cancel_ns) AS post_cancel,
        sum(duplicate_ns) AS duplicate, sum(unresolved_ns) AS unresolved, sum(recompute_ns) AS recompute,
        sum(poll_ns) AS poll, sum(held_slot_ns) AS held_slot,
        sum(least(salvaged_ns, abandoned_ns)) AS salvaged
    FROM executions
    GROUP BY ALL
),
busy AS (SELECT policy, profile, fleet, seed, sum(busy_ns) AS busy FROM replicas GROUP BY ALL),
shares AS (
    SELECT *, abandoned + post_cancel + duplicate + recompute + poll + held_slot AS waste
    FROM busy LEFT JOIN cells USING (policy, profile, fleet, seed)
)
SELECT
    policy,
    profile,
    fleet,
    avg(busy) / 1e9 AS busy_gpu_s,
    coalesce(avg(useful), 0) / 1e9 AS useful_gpu_s,
    coalesce(avg(abandoned), 0) / 1e9 AS abandoned_gpu_s,
    coalesce(avg(post_cancel), 0) / 1e9 AS post_cancel_gpu_s,
    coalesce(avg(duplicate), 0) / 1e9 AS duplicate_gpu_s,
    coalesce(avg(recompute), 0) / 1e9 AS recompute_gpu_s,
    coalesce(avg(poll), 0) / 1e9 AS poll_gpu_s,
    coalesce(avg(held_slot), 0) / 1e9 AS held_slot_gpu_s,
    coalesce(avg(unresolved), 0) / 1e9 AS unresolved_gpu_s,
    coalesce(avg(salvaged), 0) / 1e9 AS salvaged_gpu_s,
    coalesce(avg(abandoned - salvaged), 0) / 1e9 AS abandoned_net_gpu_s,
    avg(waste / nullif(busy, 0) ORDER BY seed) AS wasted_compute_frac,
    min(waste / nullif(busy, 0)) AS wasted_compute_frac_low,
    max(waste / nullif(busy, 0)) AS wasted_compute_frac_high
FROM shares
JOIN policies USING (policy)
GROUP BY policy, profile, fleet, position
ORDER BY position, profile, fleet
