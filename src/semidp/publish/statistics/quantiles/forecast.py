"""How far off quantiles would be before anything is chosen."""

from dataclasses import dataclass
from typing import Any

from semidp.publish.statistics.protocol.request_defaults import StatisticForecast
from semidp.publish.statistics.quantiles.words import ranks_text


@dataclass(frozen=True)
class RankForecast(StatisticForecast):
    """By how many ranks chosen quantiles would be off.

    Parameters
    ----------
    name, features
        What they are called, and the features that form the groups.
    rank_error
        By how many ranks a choice is off at most, with 95% probability; None where there is no
        record.

    Examples
    --------
    >>> RankForecast("median-score", ("school",), 12).line()
    'at most 12 records from the true one, in 95% of choices'
    """

    rank_error: int | None

    def line(self) -> str:
        """Say how far off a choice would be."""
        if self.rank_error is None:
            return "no noise: there is no record"
        return ranks_text(self.rank_error)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"name": self.name, "features": list(self.features), "rank_error": self.rank_error}
