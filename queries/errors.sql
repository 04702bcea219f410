-- For which reasons the server refused samples of a dataset, in its words; those that differ in numbers only are one.
SELECT
  arg_max(error, finished_at) AS words,
  count(*) AS samples,
  min(finished_at) AS first_at,
  max(finished_at) AS last_at
FROM stored
WHERE dataset = $dataset AND error IS NOT NULL
GROUP BY regexp_replace(error, '[0-9]+', '#', 'g')
ORDER BY samples DESC, last_at DESC
LIMIT $limit
