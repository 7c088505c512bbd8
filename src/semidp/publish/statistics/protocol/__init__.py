"""What the rest of semidp knows about a statistic: requests, forecasts, results and kinds.

The pipeline, the report, the explorer, the ledger and the auditor go through the values of this
folder.
"""
