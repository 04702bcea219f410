-- Samples and completion tokens of a dataset by when they finished, in spans of `step_s` seconds.
SELECT
  (floor(finished_at / $step_s) * $step_s)::DOUBLE AS began_at,
  count(*) AS samples,
  sum(completion_tokens)::BIGINT AS completion_tokens
FROM samples
WHERE dataset = $dataset
GROUP BY began_at
ORDER BY began_at
