-- What did APIs bill, by source and dataset, and how much of it for tries that brought no sample?
WITH made AS (
  SELECT source, dataset, count(*) AS samples, sum(completion_tokens)::BIGINT AS completion_tokens, sum(cost_usd) AS samples_usd
  FROM samples WHERE source NOT IN ('local', 'adopted') GROUP BY source, dataset),
paid AS (
  SELECT
    source, dataset, count(*) AS tries, sum(cost_usd) AS billed_usd,
    sum(cost_usd) FILTER (outcome <> 'finished') AS in_vain_usd,
    count(*) FILTER (cost_usd IS NULL) AS tries_of_unknown_cost
  FROM billed GROUP BY source, dataset)
SELECT
  source, dataset, samples, completion_tokens, samples_usd, samples_usd / samples AS usd_a_sample, tries, billed_usd,
  in_vain_usd, tries_of_unknown_cost
FROM made FULL JOIN paid USING (source, dataset)
ORDER BY source, dataset
