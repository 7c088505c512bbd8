"""A release, explained: as a page for people who publish, as text for a terminal, as values for
machines.

Everything said here is computed from a `Release`, which holds nothing confidential. What a
statistic says of itself is in its folder of `publish.statistics`; here is what is said of the
release as a whole.
"""

from semidp.present.report.outlook import comparison, forecast
from semidp.present.report.report_page import html
from semidp.present.report.sentences import strength, summary, weakness

__all__ = ["comparison", "forecast", "html", "strength", "summary", "weakness"]
