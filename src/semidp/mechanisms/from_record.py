"""A measurement that was made, under other exact statistics: the same query and the same noise, another guarantee.

A ledger keeps what `Mechanism.record` returns. How much a record can change the query depends on what is exact beside
it, and so does the guarantee; the noise does not.
"""

from collections.abc import Mapping
from typing import Any

from semidp.errors import InputError, Refused
from semidp.exact import positive
from semidp.mechanisms.base import Mechanism, NoNoise
from semidp.mechanisms.exponential import EXPONENTIAL
from semidp.mechanisms.knorm import KNormMechanism
from semidp.mechanisms.products import ResidualMechanism
from semidp.mechanisms.selection import FOR_RELEASES
from semidp.queries import ProductSpace, RankSpace, query_space
from semidp.spaces import Adjacency, Dataspace


def recorded(record: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency) -> Mechanism:
    """Return the mechanism of a record under any exact statistics and adjacency.

    The noise is added to the query whatever is exact, and its curve follows from its scale and from the norms of the
    query space: ``ρ = Δ2²/2σ²``, ``μ = Δ2/σ``, ``ε = Δ1/b`` and, with the l2 mechanism, ``ε = Δ2/b``; for noise on
    residuals ``μ² = 2ρ = sup Σ |r|²/σ²``, and for choices of quantiles what their rate gives. Noise that lives
    on the tables with zero margins (lattice, l2) protects only what those margins do not publish, so that the new
    statistics must include the old. K-norm noise has the shape of one space and is known under no other.

    Parameters
    ----------
    record
        What `Mechanism.record` returned.
    dataspace, adjacency
        Under which the mechanism is wanted; for noise with zero margins, within the dataspace of the record.

    Examples
    --------
    >>> from semidp.mechanisms import LaplaceMechanism
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.tradeoff import Budget
    >>> space, _ = two_way()
    >>> record = LaplaceMechanism.calibrate(space, Budget.pure(1)).record()
    >>> record["noise"]
    {'law': 'laplace', 'b': '4'}
    >>> recorded(record, space.dataspace, Adjacency(2)).tradeoff.epsilon(0)
    1.0
    """
    query, noise = record.get("query"), record.get("noise")
    if not isinstance(query, Mapping) or not isinstance(noise, Mapping):
        raise Refused("the query of this measurement was not recorded: it cannot be recomputed")
    numbers = {str(name): value for name, value in noise.items() if name != "law"}
    laws: list[type[Mechanism]] = [*FOR_RELEASES, *EXPONENTIAL, ResidualMechanism, NoNoise]
    kind = next((law for law in laws if law.name == noise.get("law")), None)
    if kind is None or kind is KNormMechanism:
        raise Refused(f"noise of the law {noise.get('law')!r} is not known under other exact statistics")
    space = query_space(query, dataspace, adjacency)
    if kind is not NoNoise and isinstance(space, RankSpace) != (kind in EXPONENTIAL):
        raise InputError(f"the record of {kind.name} noise is damaged: it cannot be recomputed")
    if isinstance(space, ProductSpace) and noise.get("law") == ResidualMechanism.name:
        try:
            return ResidualMechanism.from_record(space, noise)
        except (KeyError, TypeError, AttributeError):
            raise InputError("the record of noise on residuals is damaged: it cannot be recomputed") from None
    if kind is NoNoise and not space.is_zero:
        raise Refused("this table was published exactly because others fixed it, and here they do not fix it")
    try:
        return kind(space, **{name: positive(value, name) for name, value in numbers.items()})
    except TypeError:
        raise InputError(f"the record of {kind.name} noise is damaged: it cannot be recomputed") from None
