"""What is public about a release before any noise is drawn."""

from dataclasses import dataclass
from typing import Any

from semidp.promise.spaces.adjacency import Adjacency, SemiAdjacency
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.protection import Protection


@dataclass(frozen=True)
class Scope:
    """Public facts about a release before any noise is drawn.

    Parameters
    ----------
    dataspace
        D_t: every dataset that agrees with the published values.
    semi_adjacency
        Both readings of a(t) with their witness; None where only the caller's number is known.
    adjacency
        The relation that the mechanisms protect.
    disclosures
        What the release reveals beside its invariants and its mechanisms.
    warnings
        What a reader of the report must know.
    persons
        How many persons the records are of, where each may have several; None where a record is a
        person.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))],
    ...     ["sex", "region"],
    ... )
    >>> scope = semidp.prepare(plan, {"sex": ["f", "m"], "region": ["n", "s"]}).scope
    >>> scope.adjacency.a, scope.dataspace.summary()
    (2, 'sex, region')
    """

    dataspace: Dataspace
    semi_adjacency: SemiAdjacency | None
    adjacency: Adjacency
    disclosures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    persons: int | None = None

    @property
    def protection(self) -> Protection | None:
        """Whom the promise is about where a person may have several records."""
        return self.adjacency.protection

    def adjacency_json(self) -> dict[str, Any]:
        """Return the adjacency used beside both readings of a(t), as plain values."""
        semi = self.semi_adjacency
        unknown = {
            "worst_case": None,
            "definition": None,
            "bound": None,
            "method": "given, not checked",
        }
        return {
            "used": self.adjacency.a,
            **self.adjacency.mark(),
            **(semi.to_json() if semi else unknown),
        }
