"""``semidp analyze --propose-tables``: which tables to ask for, and what records will know from
them.
"""

import itertools
from collections.abc import Sequence

import semidp.cli._options as o
from semidp.cli._output import print_json, print_rows
from semidp.errors import InputError
from semidp.inference.records.table_proposal import ProposedTable, TableProposal, propose_tables
from semidp.promise.exact import count_noun
from semidp.promise.scope import Scope
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan

DEFAULT = Budget.gdp(1)
"""The budget of a proposal where none is given."""

_SHOWN = 12  # tables of each kind that are listed
_NOTE = (
    "from levels, records and budget alone: a choice that looks at the data would spend budget, and"
    " is not made"
)


def features_named(
    tables: Sequence[str], invariants: Sequence[str], declaring: o.Declaring
) -> list[str]:
    """Return the features that records shall have: those of --table, else all that are declared or
    exact.
    """
    names: dict[str, None] = {}
    for text in tables or invariants:
        names.update(dict.fromkeys(o.split_names(text)))
    if not tables:
        names.update(dict.fromkeys(feature.name for feature in declaring.plan().features))
    if len(names) < 2:
        raise InputError("say which features records shall have: --table class,sex,survived")
    return list(names)


def pairs_planned(features: Sequence[str], base: Plan, invariants: Sequence[str]) -> Plan:
    """Return a plan that asks for all pairs of features."""
    pairs = [",".join(pair) for pair in itertools.combinations(features, 2)]
    return o.build_plan(o.tables_asked(base, pairs), invariants)


def print_proposal(
    scope: Scope, counted: bool, features: Sequence[str], spending: o.Spending, printing: o.Printing
) -> None:
    """Propose tables and print them."""
    # Without counts nobody can say whether noise drowns a table.
    if not counted:
        raise InputError(
            "a proposal weighs noise against counts: give DATA, or --totals for every exact total"
        )
    budget = spending.budget()[0] if spending.is_given else DEFAULT
    proposal = propose_tables(scope, features, budget)
    printing.warn(scope.warnings)
    if printing.json:
        print_json(
            {
                "records": scope.dataspace.n,
                "budget": budget.numbers(),
                **proposal.to_json(),
                "note": _NOTE,
            }
        )
    else:
        print_rows(proposal_rows(proposal, scope.dataspace.n, budget))


def proposal_rows(proposal: TableProposal, records: int, budget: Budget) -> list[tuple[str, str]]:
    """Write a proposal for people."""
    rows = [("records", f"{records:,}, all tables from {budget}")]
    rows += _list_tables("ask for", proposal.tables)
    rows += _list_tables("leave out", proposal.left_out)
    for names in proposal.exact:
        rows.append(("exact", f"{' × '.join(names)}: follows from exact totals"))
    rows.append(("know", _describe_pairs(proposal)))
    rows.append(("note", _NOTE))
    options = " ".join(f"--table {','.join(table.features)}" for table in proposal.tables)
    if options:
        rows.append(("next", f"semidp release DATA {options}"))
    return rows


def _list_tables(title: str, tables: Sequence[ProposedTable]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for table in tables[:_SHOWN]:
        sizes = (
            f"standard error {table.error:.3g} a cell, {table.mean_count:.3g} records in an"
            " average one"
        )
        rows.append(
            (title, f"{' × '.join(table.features)}: {count_noun(table.cells, 'cell')}, {sizes}")
        )
    if len(tables) > _SHOWN:
        rows.append((title, f"and {len(tables) - _SHOWN} more"))
    return rows


def _describe_pairs(proposal: TableProposal) -> str:
    """Say what records would know."""
    pairs = sum(len(table.features) > 1 for table in proposal.tables) + len(proposal.exact)
    unknown = len(proposal.left_out)
    text = f"records will know {pairs} {'pair' if pairs == 1 else 'pairs'} of features"
    if unknown:
        text += f", and of {unknown} more only what follows from those"
    return f"{text}; how three hang together is left to chance"
