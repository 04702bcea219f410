-- What were the samples worth that finished in each span of time?
SELECT floor(finished_at / $step_s) * $step_s AS began_at, outcome, count(*) AS samples
FROM samples
WHERE $dataset IS NULL OR dataset = $dataset
GROUP BY began_at, outcome
ORDER BY began_at, outcome
