"""A release, explained: as a page for people who publish, as text for a terminal, as values for machines.

Everything said here is computed from a `Release`, which holds nothing confidential.
"""

from semidp.report.page import html
from semidp.report.sentences import implied, name_of, product_errors, product_lines, strength, summary, together_text

__all__ = ["html", "implied", "name_of", "product_errors", "product_lines", "strength", "summary", "together_text"]
