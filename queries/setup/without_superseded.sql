-- Takes rows that a redo replaced out of what is kept in memory.
DELETE FROM kept USING superseded AS gone
  WHERE kept.dataset = gone.dataset AND kept.position = gone.position AND kept.turn = gone.turn AND kept.attempt = gone.attempt;
DELETE FROM open USING superseded AS gone
  WHERE open.dataset = gone.dataset AND open.position = gone.position AND open.turn = gone.turn AND open.attempt = gone.attempt;
