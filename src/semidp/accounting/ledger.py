"""A ledger: a locked file that adds up what releases of the same data spend, and refuses to go past its budget.

It is charged before noise is drawn. Two processes may use it at once, and a process that is killed leaves the file as
it was before or after the charge, never between. How curves add up is in tradeoff.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from semidp.accounting.conversions import approximate_group, pure_to_gdp
from semidp.errors import BudgetExceeded, InputError, Refused
from semidp.files import locked, replace_file
from semidp.guarantees import Guarantee, read_document, space_document, space_from
from semidp.spaces import Adjacency, Dataspace
from semidp.tradeoff import (
    Approximate,
    Budget,
    Composed,
    Grouped,
    Order,
    Tradeoff,
    compose,
    tradeoff_from_json,
)

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Charge:
    """One entry: what was released, its curve as stated, and how many records that curve still has to be grouped by.

    >>> from semidp.tradeoff import zcdp
    >>> Charge("redistricting", "2021-08-12T00:00:00+00:00", zcdp("2.56"), 2).spent
    ZCDP(rho=Fraction(256, 25))
    """

    label: str
    time: str
    tradeoff: Tradeoff
    group: int

    @property
    def spent(self) -> Tradeoff:
        """The curve under the ledger's adjacency."""
        return self.tradeoff.group(self.group)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain values."""
        return {"label": self.label, "time": self.time, "tradeoff": self.tradeoff.to_json(), "group": self.group}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Charge":
        """Read what `to_json` wrote.

        >>> from semidp.tradeoff import zcdp
        >>> charge = Charge("a table", "2026-01-01T00:00:00+00:00", zcdp(1), 1)
        >>> Charge.from_json(charge.to_json()) == charge
        True
        """
        return cls(value["label"], value["time"], tradeoff_from_json(value["tradeoff"]), value["group"])


@dataclass(frozen=True)
class Account:
    """What a ledger file holds at one moment.

    The dataspace and adjacency are those of the first charge, unless the ledger was created with its own. A charge
    about other features of the same records joins them, as long as the same is published.

    >>> from semidp.tradeoff import zcdp
    >>> charges = [Charge("a table", "2026-01-01T00:00:00+00:00", zcdp("0.1"), 2)] * 2
    >>> Account(Budget.zcdp(1), charges=tuple(charges)).semi_first()  # 2 · 2² · 0.1
    ZCDP(rho=Fraction(4, 5))
    """

    budget: Budget
    dataspace: Dataspace | None = None
    adjacency: Adjacency | None = None
    charges: tuple[Charge, ...] = ()

    def semi_first(self) -> Tradeoff:
        """Return ``f1∘…∘f1 ⊗ … ⊗ fk∘…∘fk``: group each mechanism, then compose. This is what counts."""
        return compose(*(charge.spent for charge in self.charges))

    def composition_first(self) -> Tradeoff:
        """Return ``(f1 ⊗ … ⊗ fk)∘…∘(f1 ⊗ … ⊗ fk)``, never stronger than `semi_first` (Cho and Awan, Section 3.6).

        Charges that were calibrated under the invariant have no one-record curve and are composed as they are.
        """
        ready = [charge.tradeoff for charge in self.charges if charge.group == 1]
        stated = [charge for charge in self.charges if charge.group > 1]
        lifted = [compose(*(charge.tradeoff for charge in stated)).group(stated[0].group)] if stated else []
        return compose(*ready, *lifted)

    def charged(self, guarantee: Guarantee, label: str) -> "Account":
        """Return the account after one more charge; refuse another dataspace, and more than the budget."""
        dataspace = self.dataspace or guarantee.dataspace
        joined = dataspace.joined(guarantee.dataspace)
        if joined is not None:
            dataspace, guarantee = joined, Guarantee(joined, guarantee.adjacency, guarantee.tradeoff)
        adjacency = self.adjacency or guarantee.adjacency
        time = datetime.now(UTC).isoformat(timespec="seconds")
        charge = Charge(label, time, guarantee.tradeoff, _group_needed(guarantee, dataspace, adjacency))
        account = Account(self.budget, dataspace, adjacency, (*self.charges, charge))
        if not fits(account.semi_first(), self.budget):
            raise BudgetExceeded(
                f"charging {label!r} would exceed the ledger's budget of {self.budget}: nothing was released or "
                "charged; ask for a smaller budget, or open a new ledger if the data are new"
            )
        return account


class Ledger:
    """A file that records what was spent on one dataset under one invariant.

    Parameters
    ----------
    path
        A file that `Ledger.create` made.

    Examples
    --------
    >>> import tempfile
    >>> from semidp.tradeoff import zcdp
    >>> folder = tempfile.TemporaryDirectory()
    >>> book = Ledger.create(Path(folder.name) / "ledger.json", Budget.zcdp(1))
    >>> guarantee = Guarantee(Dataspace.described("state totals"), Adjacency(2), zcdp("0.4"))
    >>> book.charge(guarantee, "first table")["number"], book.charge(guarantee, "second table")["number"]
    (1, 2)
    >>> book.total().tradeoff
    ZCDP(rho=Fraction(4, 5))
    >>> book.charge(guarantee, "third table")
    Traceback (most recent call last):
    semidp.errors.BudgetExceeded: charging 'third table' would exceed the ledger's budget of rho = 1 ...
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path) -> None:
        # A link to a ledger is that ledger: it must share its lock, and a charge must not replace the link by a copy.
        self.path = Path(path).resolve()
        if not self.path.exists():
            raise InputError(
                f"there is no ledger at {path}: create it once with its budget, by Ledger.create(path, budget)",
                needs="ledger",
            )

    @classmethod
    def create(
        cls,
        path: str | Path,
        budget: Budget,
        dataspace: Dataspace | None = None,
        adjacency: Adjacency | None = None,
    ) -> "Ledger":
        """Make a new, empty ledger; refuse to overwrite one.

        Parameters
        ----------
        path
            The file to make.
        budget
            What may be spent in total.
        dataspace, adjacency
            Under which invariant; both, or neither to take those of the first charge.
        """
        path = Path(path).resolve()
        if (dataspace is None) != (adjacency is None):
            raise InputError("give a ledger both a dataspace and an adjacency, or neither")
        if path.exists():  # asked before the lock, too: its file would stay beside a file that is no ledger
            raise InputError(f"{path} already exists: a ledger is never overwritten")
        with _locked(path):
            if path.exists():
                raise InputError(f"{path} already exists: a ledger is never overwritten")
            _write(path, Account(budget, dataspace, adjacency))
        return cls(path)

    def charge(self, guarantee: Guarantee, label: str) -> dict[str, Any]:
        """Record that a mechanism is about to run; return the entry once it is safely on disk.

        Parameters
        ----------
        guarantee
            What the mechanism satisfies: under the ledger's dataspace and adjacency, or for one record with nothing
            published exactly, which is then grouped.
        label
            What is released, for whoever reads the ledger.

        Raises
        ------
        BudgetExceeded
            If all charges together would no longer fit the budget. Nothing is recorded then.
        Refused
            If the guarantee is about another dataspace.
        """
        with _locked(self.path):
            account = _read(self.path).charged(guarantee, label)
            _write(self.path, account)
        return {"number": len(account.charges), **account.charges[-1].to_json()}

    def account(self) -> Account:
        """Return what the file holds now. That takes no lock: a charge replaces the whole file at once."""
        return _read(self.path)

    def total(self) -> Guarantee | None:
        """Return the guarantee of everything charged, Semi-DP first; None before the first charge."""
        account = self.account()
        return _guarantee(account, account.semi_first())

    def composition_first(self) -> Guarantee | None:
        """Return the guarantee of everything charged, composition first: for comparison, it is never stronger."""
        account = self.account()
        return _guarantee(account, account.composition_first())


def fits(total: Tradeoff, budget: Budget) -> bool:
    """Whether a curve provably stays within a budget.

    >>> from semidp.tradeoff import gaussian, zcdp
    >>> fits(gaussian(1), Budget.zcdp("1/2")), fits(gaussian(1), Budget.zcdp("0.49"))
    (True, False)
    >>> fits(zcdp(1), Budget.pure(10))
    Traceback (most recent call last):
    semidp.errors.Refused: these mechanisms satisfy no pure guarantee: use a ledger with another kind of budget
    """
    if budget.rho is not None:
        return _within(total.implied_rho(), budget.rho, "zero-concentrated")
    if budget.mu is not None:
        square = _mu_squared(total)
        return (
            total.compare(budget.tradeoff()) in (Order.EQUAL, Order.STRONGER)
            if square is None
            else (square <= budget.mu**2)
        )
    assert budget.epsilon is not None
    if not budget.delta:
        return _within(total.implied_epsilon(), budget.epsilon, "pure")
    epsilon, delta = _basic(total)
    return (epsilon <= budget.epsilon and delta <= budget.delta) or total.delta(budget.epsilon) <= budget.delta


def _within(spent: Fraction | None, limit: Fraction, kind: str) -> bool:
    if spent is None:
        raise Refused(f"these mechanisms satisfy no {kind} guarantee: use a ledger with another kind of budget")
    return spent <= limit


def _mu_squared(total: Tradeoff) -> Fraction | None:
    """Return the square of a mu such that mu-GDP follows, rounded up, or None where none is known part by part."""
    if isinstance(total, Composed):
        squares = [_mu_squared(part) for part in total.parts]
        return None if None in squares else sum((square for square in squares if square is not None), Fraction(0))
    exactly = total.implied_mu_squared()
    if exactly is not None or isinstance(total, Grouped):
        return exactly
    pure = total.implied_epsilon()
    return None if pure is None else pure_to_gdp(pure) ** 2


def _basic(total: Tradeoff) -> tuple[Fraction, Fraction]:
    """Return an exact (epsilon, delta) by basic composition of the parts; delta 1 where a part has none."""
    if isinstance(total, Composed):
        points = [_basic(part) for part in total.parts]
        return sum((e for e, _ in points), Fraction(0)), min(sum((d for _, d in points), Fraction(0)), Fraction(1))
    if isinstance(total, Approximate):
        if total.size == 1:
            return total.epsilon0, total.delta0
        epsilon, delta = approximate_group(total.epsilon0, total.delta0, total.size)
        return epsilon, Fraction(delta)
    pure = total.implied_epsilon()
    return (Fraction(0), Fraction(1)) if pure is None else (pure, Fraction(0))


def _group_needed(guarantee: Guarantee, dataspace: Dataspace, adjacency: Adjacency) -> int:
    """Return by how many records a charge must be grouped: 1 where it is stated for the ledger's pairs already."""
    one_record = guarantee.adjacency.a == 1 and guarantee.is_ordinary
    if guarantee.adjacency.kind is not adjacency.kind and not one_record:
        raise Refused(
            f"this ledger adds up guarantees for {adjacency}, and the new one is for {guarantee.adjacency}: ball and "
            "exchange are two promises and are not added up; ask for the ledger's adjacency, or use another ledger"
        )
    if guarantee.covers(Guarantee(dataspace, adjacency, guarantee.tradeoff)):
        return 1
    if guarantee.adjacency.a == 1 and guarantee.is_ordinary and dataspace.is_within(guarantee.dataspace):
        return adjacency.a
    raise Refused(
        f"this ledger adds up releases under {dataspace.summary()} and {adjacency.a} records, and the new guarantee is "
        f"about {guarantee.dataspace.summary()} and {guarantee.adjacency.a}: guarantees add up under one dataspace "
        "only; calibrate under all invariants together, or use another ledger"
    )


def _guarantee(account: Account, tradeoff: Tradeoff) -> Guarantee | None:
    if account.dataspace is None or account.adjacency is None or not account.charges:
        return None
    return Guarantee(account.dataspace, account.adjacency, tradeoff)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the ledger's lock. It is a file of its own, because the ledger itself is replaced by every charge.

    The file stays: were it removed, two processes could each hold a lock of that name.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(path.with_name(f".{path.name}.lock")))
        except OSError as error:
            raise InputError(f"cannot lock {path}: {(error.strerror or 'unknown reason').lower()}") from None
        yield


def _write(path: Path, account: Account) -> None:
    document = {
        "schema_version": SCHEMA_VERSION,
        "budget": account.budget.to_json(),
        "dataspace": account.dataspace and space_document(account.dataspace, path),
        "adjacency": account.adjacency and account.adjacency.to_json(),
        "charges": [charge.to_json() for charge in account.charges],
    }
    replace_file(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _read(path: Path) -> Account:
    document = read_document(path, "a ledger")
    if document.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise InputError(f"the ledger {path} was written by another version of semidp: read it with that version")
    try:
        return Account(
            Budget.from_json(document["budget"]),
            document["dataspace"] and space_from(document["dataspace"], path),
            document["adjacency"] and Adjacency.from_json(document["adjacency"]),
            tuple(Charge.from_json(charge) for charge in document["charges"]),
        )
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{path} does not hold a ledger") from None
