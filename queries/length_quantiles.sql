-- The lengths, in completion tokens, that a tenth, half and nine tenths of a dataset's answers stay below.
SELECT
  quantile_cont(completion_tokens, 0.1) AS p10,
  quantile_cont(completion_tokens, 0.5) AS p50,
  quantile_cont(completion_tokens, 0.9) AS p90
FROM samples
WHERE ($dataset IS NULL OR dataset = $dataset) AND finish_reason <> 'rejected'
