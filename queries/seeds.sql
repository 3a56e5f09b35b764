-- name: seeds
-- purpose: What did each replay come to: how much of a figure is the luck of its seed?
-- columns: policy, profile, fleet, seed; delivered_call_rate, on_time_rate = of eligible calls; wasted_compute_frac =
--   waste / busy; wasted_gpu_s, busy_gpu_s = GPU-seconds; survivor_p95_s = latency over the calls whose user never
--   leaves, undelivered ones counted as infinite; attempts = sent by clients
SELECT replays.* FROM replays JOIN policies USING (policy) ORDER BY position, profile, fleet, seed
