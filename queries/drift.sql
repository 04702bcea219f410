-- Do lengths and outcomes drift over time? By when samples finished, so that the first span holds the short ones only.
WITH spans AS (
  SELECT
    floor(finished_at / $step_s) * $step_s AS began_at,
    count(*) AS samples,
    avg(completion_tokens) FILTER (finish_reason <> 'rejected') AS mean_tokens,
    quantile_cont(completion_tokens, [0.1, 0.5, 0.9]) FILTER (finish_reason <> 'rejected') AS q,
    avg((finish_reason = 'length')::INTEGER) AS share_capped,
    avg((outcome IN ('empty', 'thinking_only', 'degenerate'))::INTEGER) AS share_bad,
    avg((outcome = 'ok')::INTEGER) AS share_ok
  FROM samples
  WHERE $dataset IS NULL OR dataset = $dataset
  GROUP BY began_at)
SELECT
  began_at, samples, mean_tokens, q[1] AS p10_tokens, q[2] AS p50_tokens, q[3] AS p90_tokens, share_ok, share_capped, share_bad
FROM spans
ORDER BY began_at
