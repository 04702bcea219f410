-- What lengths, in completion tokens, do so many of the answers stay below, apart by dataset, outcome, source or finish reason?
WITH apart AS (
  SELECT
    CASE $by WHEN 'outcome' THEN outcome WHEN 'source' THEN source WHEN 'finish reason' THEN finish_reason ELSE dataset END
      AS name,
    count(*) AS answers,
    avg(completion_tokens) AS mean_tokens,
    min(completion_tokens) AS shortest_tokens,
    quantile_cont(completion_tokens, [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]) AS q,
    max(completion_tokens) AS longest_tokens
  FROM samples
  WHERE finish_reason <> 'rejected' AND ($dataset IS NULL OR dataset = $dataset)
  GROUP BY name)
SELECT
  name, answers, mean_tokens, shortest_tokens, q[1] AS p10_tokens, q[2] AS p25_tokens, q[3] AS p50_tokens,
  q[4] AS p75_tokens, q[5] AS p90_tokens, q[6] AS p99_tokens, longest_tokens
FROM apart
ORDER BY name
