-- The short columns of `arrived`, which are rows of shards or of the ledger. Times become epoch seconds.
SELECT
  seq, dataset, sample_id, position::INTEGER AS position, turn::SMALLINT AS turn, attempt::SMALLINT AS attempt,
  source, model, server_epoch, finish_reason,
  outcome(finish_reason, answer_tokens, reasoning_closed, repeat_period, repeat_share, tool_calls IS NOT NULL) AS outcome,
  prompt_tokens::INTEGER AS prompt_tokens, completion_tokens::INTEGER AS completion_tokens,
  reasoning_tokens::INTEGER AS reasoning_tokens, cached_tokens::INTEGER AS cached_tokens,
  answer_tokens::INTEGER AS answer_tokens, tokens_estimated, tool_calls IS NOT NULL AS has_tool_calls,
  reasoning_closed, repeat_period::INTEGER AS repeat_period, repeat_share, simhash,
  epoch_us(started_at) / 1e6 AS started_at, epoch_us(first_token_at) / 1e6 AS first_token_at,
  epoch_us(finished_at) / 1e6 AS finished_at, cost_usd, left(error, 500) AS error$texts
FROM arrived
