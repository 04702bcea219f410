"""When a run will end, as a range that holds 8 times of 10: observation in, forecast out. Pure: no files, no clock.

`observation.py` says what is given, `forecast.py` answers. Between them: `lengths.py` and `resemblance.py` (how long
completions are), `work.py` (what is left), `curve.py` and `speed.py` (how fast it goes), `worlds.py` (all of it drawn
together), `calibrate.py` (ranges that hold).
`what_if.py` changes an observation; `sensitivity.py` is the arithmetic of a table.
"""
