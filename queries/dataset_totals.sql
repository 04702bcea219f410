-- How many samples of a dataset count, their tokens, and when the first and the last finished (epoch seconds).
SELECT
  count(*) AS samples,
  count(*) FILTER (finish_reason <> 'rejected') AS answered,
  count(*) FILTER (finish_reason = 'length') AS capped,
  sum(completion_tokens)::BIGINT AS completion_tokens,
  sum(prompt_tokens)::BIGINT AS prompt_tokens,
  sum(reasoning_tokens)::BIGINT AS reasoning_tokens,
  avg(completion_tokens) FILTER (finish_reason <> 'rejected') AS mean_tokens,
  max(completion_tokens) FILTER (finish_reason <> 'rejected') AS longest_tokens,
  min(finished_at) AS first_finished_at,
  max(finished_at) AS last_finished_at
FROM samples
WHERE dataset = $dataset
