"""Finished samples handed over as files that can be trained on: which (`options`), from where (`source`), in which form
(`forms`), into which files (`files`), counted (`tally`) and told (`card`). `work` does it; `background` lets a page start and
watch it.
"""
