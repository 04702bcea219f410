-- Which prompts were asked more than once, and how many clearly different answers did they get?
WITH repeated AS (
  SELECT
    count(*) AS samples, count(DISTINCT simhash) AS different_answers, count(DISTINCT dataset) AS datasets,
    min({'dataset': dataset, 'position': position, 'turn': turn, 'attempt': attempt}) AS first
  FROM texts
  WHERE $dataset IS NULL OR dataset = $dataset
  GROUP BY hash(messages)
  HAVING count(*) > 1
  ORDER BY samples DESC, first
  LIMIT $limit)
SELECT
  samples, different_answers, datasets, texts.dataset, texts.position, texts.turn, texts.attempt, left(messages, 300) AS prompt
FROM repeated JOIN texts
  ON dataset = first.dataset AND position = first.position AND turn = first.turn AND attempt = first.attempt
ORDER BY samples DESC, first
