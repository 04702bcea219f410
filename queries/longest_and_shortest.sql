-- Which answers are the longest, and which the shortest?
WITH answers AS (
  SELECT dataset, position, turn, attempt, outcome, finish_reason, completion_tokens, finished_at - started_at AS took_s
  FROM samples
  WHERE finish_reason <> 'rejected' AND ($dataset IS NULL OR dataset = $dataset))
FROM (
  SELECT 'longest' AS which, * FROM answers ORDER BY completion_tokens DESC, dataset, position, turn LIMIT $limit)
UNION ALL FROM (
  SELECT 'shortest' AS which, * FROM answers ORDER BY completion_tokens, dataset, position, turn LIMIT $limit)
ORDER BY which, if(which = 'longest', -completion_tokens, completion_tokens), dataset, position, turn
