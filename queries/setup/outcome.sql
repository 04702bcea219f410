-- What a finished text is worth: the decision list of backend/outcomes/rule.py over the same stored columns.
CREATE MACRO outcome(finish_reason, answer_tokens, reasoning_closed, repeat_period, repeat_share, has_tool_calls) AS
  CASE
    WHEN finish_reason = 'rejected' THEN 'rejected'
    WHEN repeat_period IS NOT NULL AND (finish_reason = 'length' OR repeat_share IS NULL OR repeat_share >= 0.2)
      THEN 'degenerate'
    WHEN finish_reason = 'length' THEN 'truncated'
    WHEN has_tool_calls THEN 'ok'
    WHEN reasoning_closed = false THEN 'thinking_only'
    WHEN answer_tokens < 1 AND reasoning_closed IS NULL THEN 'empty'
    WHEN answer_tokens < 1 THEN 'thinking_only'
    ELSE 'ok'
  END;
