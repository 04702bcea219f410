-- How far is each dataset: samples and tokens against its limits, and when its first and its last sample finished?
SELECT
  budgets.dataset, coalesce(samples, 0) AS samples, max_samples, coalesce(completion_tokens, 0) AS completion_tokens,
  token_budget, prompt_tokens, mean_tokens, coalesce(rejected, 0) AS rejected, first_finished_at, last_finished_at
FROM budgets
LEFT JOIN (
  SELECT
    dataset, count(*) AS samples, sum(completion_tokens)::BIGINT AS completion_tokens, sum(prompt_tokens)::BIGINT AS prompt_tokens,
    avg(completion_tokens) FILTER (finish_reason <> 'rejected') AS mean_tokens,
    count(*) FILTER (finish_reason = 'rejected') AS rejected,
    min(finished_at) AS first_finished_at, max(finished_at) AS last_finished_at
  FROM samples GROUP BY dataset) USING (dataset)
ORDER BY place
