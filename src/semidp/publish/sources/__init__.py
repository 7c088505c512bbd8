"""Where records come from: files, data frames and databases, counted where they are.

`opening` is the page to read first: `open_source` and `Source`. `contract` says what a kind of
source must do, and holds tables of counts; `duck` reads files and data frames, `ibis` databases and
Spark. No error of an engine leaves this folder, because it may quote data: `contract.quietly` and
`duck.read_or_explain` replace it.
"""
