"""A release, explained: as a page for people who publish, as text for a terminal, as values for machines.

Everything said here is computed from a `Release`, which holds nothing confidential.
"""

from semidp.report.outlook import comparison, expected_counts, forecast, forecast_text, stated_text
from semidp.report.page import html
from semidp.report.sentences import (
    budget_parts,
    cell_errors,
    change,
    errors_text,
    implied,
    name_of,
    product_errors,
    product_lines,
    strength,
    summary,
    together_text,
    weakness,
)

__all__ = [
    "budget_parts",
    "cell_errors",
    "change",
    "comparison",
    "errors_text",
    "expected_counts",
    "forecast",
    "forecast_text",
    "html",
    "implied",
    "name_of",
    "product_errors",
    "product_lines",
    "stated_text",
    "strength",
    "summary",
    "together_text",
    "weakness",
]
