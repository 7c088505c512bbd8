"""Odds-ratio tests, as the registry finds them."""

from semidp.statistics.odds_ratio.cell import CanonicalMechanism, recorded_cell
from semidp.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.statistics.odds_ratio.published import PublishedOddsRatio
from semidp.statistics.odds_ratio.request import OddsRatioRequest
from semidp.statistics.protocol import Kind

KIND = Kind(
    place=40,
    key="odds_ratio",
    asked=(OddsRatioRequest,),
    queries={"cell": recorded_cell},
    laws=(CanonicalMechanism,),
    results={PublishedOddsRatio.key: PublishedOddsRatio.from_json},
    printed={"grid_bits": OddsRatioResult.from_json},
)
