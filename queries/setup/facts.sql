-- The columns that are kept in memory, of `arrived`: rows of shards or of the ledger that were not seen before.
SELECT
  seq, dataset, position, turn, attempt, finish_reason,
  outcome(finish_reason, answer_tokens, reasoning_closed, repeat_period, repeat_share, tool_calls IS NOT NULL) AS outcome,
  prompt_tokens, completion_tokens, reasoning_tokens,
  epoch_us(started_at) / 1e6 AS started_at, epoch_us(finished_at) / 1e6 AS finished_at, left(error, 500) AS error
FROM arrived
