-- Where two runs answered the same prompts: how often did an outcome here meet an outcome there?
SELECT ours.outcome AS outcome, theirs.outcome AS other_outcome, count(*) AS prompts
FROM ours JOIN theirs USING (key)
GROUP BY ALL
ORDER BY prompts DESC, outcome, other_outcome
