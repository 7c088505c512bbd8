"""Sources of records: files, data frames and databases, counted in place.

Read `opening` first: `open_source` and `Source`. `contract` defines the interface of a source,
and holds tables of counts; `duck` reads files and data frames, `ibis` databases and
Spark. No error of an engine leaves this folder, because it may quote data: `contract.quietly` and
`duck.read_or_explain` replace it.
"""
