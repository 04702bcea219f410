-- How much of its token budget has each dataset used, and what was made in vain because it was made again?
SELECT
  budgets.dataset, token_budget, coalesce(tokens, 0)::BIGINT AS completion_tokens, tokens / token_budget AS share_used,
  token_budget - coalesce(tokens, 0)::BIGINT AS left_tokens, coalesce(samples, 0)::BIGINT AS samples, max_samples,
  coalesce(replaced_tokens, 0)::BIGINT AS replaced_tokens
FROM budgets
LEFT JOIN (SELECT dataset, count(*) AS samples, sum(completion_tokens) AS tokens FROM samples GROUP BY dataset) USING (dataset)
LEFT JOIN (SELECT dataset, sum(completion_tokens) AS replaced_tokens FROM replaced GROUP BY dataset) USING (dataset)
ORDER BY place
