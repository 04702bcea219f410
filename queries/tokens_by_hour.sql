-- How many samples and tokens finished in each hour (UTC), by dataset?
SELECT
  floor(finished_at / 3600) * 3600 AS hour_at,
  dataset,
  count(*) AS samples,
  sum(completion_tokens)::BIGINT AS completion_tokens,
  sum(prompt_tokens)::BIGINT AS prompt_tokens
FROM samples
WHERE $dataset IS NULL OR dataset = $dataset
GROUP BY hour_at, dataset
ORDER BY hour_at, dataset
