"""What a browser tab shows: one file a page, each asks `report`, arranges and draws. `frame.py` is the table of contents."""
