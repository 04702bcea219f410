"""What is given to those who wait for the data: a page, a picture and a paragraph that say the same.

`snapshot.py` is what they say, as values; `page.py`, `png.py` and `paragraph.py` put it into a form, `files.py` writes it.
"""
