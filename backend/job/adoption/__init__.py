"""Answers that other scripts made become finished samples: what a line holds (`outputs`), where it lies (`output_files`),
which prompt it answers (`matching`), which row it becomes (`adopted_rows`), what became of it (`account`). `adopt` does it.
"""
