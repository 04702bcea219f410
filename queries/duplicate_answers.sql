-- Which answers were given more than once, word for word?
WITH repeated AS (
  SELECT
    count(*) AS samples, count(DISTINCT dataset) AS datasets,
    min({'dataset': dataset, 'position': position, 'turn': turn, 'attempt': attempt}) AS first
  FROM texts
  WHERE answer <> '' AND ($dataset IS NULL OR dataset = $dataset)
  GROUP BY hash(answer)
  HAVING count(*) > 1
  ORDER BY samples DESC, first
  LIMIT $limit)
SELECT
  samples, datasets, texts.dataset, texts.position, texts.turn, texts.attempt, completion_tokens, left(answer, 300) AS answer
FROM repeated JOIN texts
  ON dataset = first.dataset AND position = first.position AND turn = first.turn AND attempt = first.attempt
ORDER BY samples DESC, first
