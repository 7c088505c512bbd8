"""A release carried out part by part: for tables that one process does not hold.

`by_partition` is the page to read first; `tasks` is one part's work, `runners` where tasks run,
`partition_words` what is said of parts.
"""
