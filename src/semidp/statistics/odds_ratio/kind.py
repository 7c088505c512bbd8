"""Odds-ratio tests, as the registry finds them."""

from semidp.statistics.odds_ratio.measured import OddsRatioResult
from semidp.statistics.protocol import Kind

KIND = Kind(place=40, key="odds_ratio", printed={"grid_bits": OddsRatioResult.from_json})
