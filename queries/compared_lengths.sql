-- Where two runs answered the same prompts: how many tokens did each take, by dataset?
SELECT
  ours.dataset, count(*) AS prompts,
  avg(ours.completion_tokens) AS mean_tokens, avg(theirs.completion_tokens) AS other_mean_tokens,
  median(ours.completion_tokens) AS median_tokens, median(theirs.completion_tokens) AS other_median_tokens,
  avg(ours.completion_tokens - theirs.completion_tokens) AS mean_difference_tokens,
  avg((ours.completion_tokens > theirs.completion_tokens)::INTEGER) AS share_longer,
  avg((ours.outcome = 'ok')::INTEGER) AS share_ok, avg((theirs.outcome = 'ok')::INTEGER) AS other_share_ok
FROM ours JOIN theirs USING (key)
GROUP BY ours.dataset
ORDER BY ours.dataset
