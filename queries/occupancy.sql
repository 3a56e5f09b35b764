-- name: occupancy
-- purpose: How full were batch, queue and KV pool, in each phase?
-- columns: policy, profile, fleet; phase; running_mean, running_max = requests in the batch of a replica; waiting_mean,
--   waiting_max = requests in its queue; used_blocks_mean, used_blocks_max = KV blocks held. Means over the looks of
--   the timeline, replicas and seeds; max is the highest of all
SELECT
    t.policy,
    t.profile,
    t.fleet,
    p.phase,
    sum(running) / count(*) AS running_mean,
    max(running) AS running_max,
    sum(waiting) / count(*) AS waiting_mean,
    max(waiting) AS waiting_max,
    sum(used_blocks) / count(*) AS used_blocks_mean,
    max(used_blocks) AS used_blocks_max
FROM timeline AS t
JOIN phases AS p ON t.sample_s >= p.start_s AND t.sample_s < p.end_s
JOIN policies USING (policy)
GROUP BY t.policy, t.profile, t.fleet, policies.position, p.phase, p.start_s
ORDER BY policies.position, t.profile, t.fleet, p.start_s
