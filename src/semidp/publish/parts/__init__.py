"""A release carried out part by part: for tables that one process does not hold.

`block_run` is the page to read first; `runners` holds the work of one part and where it runs.
"""
