-- How long does a request take, how soon does it begin to answer, and how many tokens a second does it make?
-- Quantiles are taken of whole milliseconds and hundredths of a token/s: of numbers that small they cost half as much.
WITH requests AS (
  SELECT
    dataset, source, count(*) AS requests,
    quantile_cont(
      round(greatest(least((finished_at - started_at) * 1000, 2e9), -2e9))::INTEGER, [0.1, 0.5, 0.9, 0.99]) AS took,
    avg(first_token_at - started_at) AS mean_first_token_s,
    quantile_cont(
      round(greatest(least(completion_tokens * 100 / nullif(finished_at - started_at, 0), 2e9), -2e9))::INTEGER,
      [0.1, 0.5, 0.9]) AS speed
  FROM samples
  WHERE finish_reason <> 'rejected' AND ($dataset IS NULL OR dataset = $dataset)
  GROUP BY dataset, source)
SELECT
  dataset, source, requests, took[1] / 1000 AS took_p10_s, took[2] / 1000 AS took_p50_s, took[3] / 1000 AS took_p90_s,
  took[4] / 1000 AS took_p99_s, mean_first_token_s, speed[1] / 100 AS p10_tokens_per_s,
  speed[2] / 100 AS p50_tokens_per_s, speed[3] / 100 AS p90_tokens_per_s
FROM requests
ORDER BY dataset, source
