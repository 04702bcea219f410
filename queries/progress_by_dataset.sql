-- How far is each dataset: samples and tokens against its limits, and when its first and its last sample finished?
SELECT
  budgets.dataset,
  count(samples.position) AS samples,
  any_value(max_samples) AS max_samples,
  coalesce(sum(completion_tokens), 0)::BIGINT AS completion_tokens,
  any_value(token_budget) AS token_budget,
  sum(prompt_tokens)::BIGINT AS prompt_tokens,
  avg(completion_tokens) FILTER (finish_reason <> 'rejected') AS mean_tokens,
  count(*) FILTER (finish_reason = 'rejected') AS rejected,
  min(finished_at) AS first_finished_at,
  max(finished_at) AS last_finished_at
FROM budgets LEFT JOIN samples USING (dataset)
GROUP BY budgets.dataset, budgets.place
ORDER BY budgets.place
