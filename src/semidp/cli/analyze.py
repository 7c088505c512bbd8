"""``semidp analyze`` and ``compare``: what publishing these statistics exactly would mean, and
plans side by side, before any noise is drawn.

`analysis` builds the document from public values only, `analyze` reads the data and prints it.
``semidp analyze --propose-tables`` says which tables to ask for, and what records will know from
them.

``semidp explore``: a page of this machine that shows what a plan would publish before anything is
spent.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import evolve

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import (
    append_hint,
    charge_said,
    echo,
    grid,
    harmless,
    kind_and_a,
    print_grid,
    print_json,
    print_rows,
)
from semidp.errors import InputError, Refused, SemidpError
from semidp.inference.records.record_knowledge import ProposedTable, TableProposal, propose_tables
from semidp.present.disclosure_words import brief_rows, review_totals
from semidp.present.forecasts import Outlook, comparison, forecast
from semidp.present.release import Release
from semidp.promise.exact import count_noun, format_rounded_up, plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.table_spaces import TableSpace, sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.protection import AdjacencyWords, Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.folders import check_place
from semidp.publish.half_widths import cell_errors
from semidp.publish.pipeline import RunOptions, calibrate, run_plan
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import build_plan
from semidp.publish.release_files import release_files
from semidp.publish.results.texts import errors_text
from semidp.publish.selection import available, naive_loss, option_name, residual_plan
from semidp.publish.sources.opening import local_paths
from semidp.publish.statistics.protocol.statistic import Chosen, build_requests
from semidp.publish.witness import find_witness

if TYPE_CHECKING:
    from semidp.present.forecasts import PlanForecasts


DEFAULT = Budget.gdp(1)
"""The budget of a proposal where none is given."""

_SHOWN = 12  # tables of each kind that are listed
_NOTE = (
    "from levels, records and budget alone: a choice that looks at the data would spend budget, and"
    " is not made"
)


def features_named(options: o.Options) -> list[str]:
    """Return the features that records shall have: those of --table, else all that are declared or
    exact.
    """
    settings = options.given
    named = settings["table"] or settings["exact"]
    names = dict.fromkeys(name for names in named for name in names)
    if not settings["table"]:
        names.update(dict.fromkeys(feature.name for feature in options.describe().features))
    if len(names) < 2:
        raise InputError("say which features records shall have: --table class,sex,survived")
    return list(names)


def pairs_planned(features: Sequence[str], options: o.Options) -> Plan:
    """Return a plan that asks for all pairs of features."""
    pairs = tuple(itertools.combinations(features, 2))
    return build_plan(options.given, build_requests(Chosen({"table": pairs})))


def print_proposal(
    scope: Scope, counted: bool, features: Sequence[str], options: o.Options, printing: o.Printing
) -> None:
    """Propose tables and print them."""
    # Without counts nobody can say whether noise drowns a table.
    if not counted:
        raise InputError(
            "a proposal weighs noise against counts: give DATA, or --totals for every exact total"
        )
    budget = options.budget() if options.spends else DEFAULT
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
            f"standard error {table.error:.3g} per cell, {table.mean_count:.3g} records in an"
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
    return f"{text}; associations among three features are left to chance"


REFERENCE: tuple[Budget, ...] = (Budget.pure(1), Budget.gdp(1), Budget.zcdp("1/2"))
"""The budgets for which the noise is shown when none is given."""


@command
def analyze(
    *,
    data: o.Text = o.OPTIONAL_DATA,
    options: Annotated[
        o.Options,
        ("table", *o.EXACT, *o.BUDGET, *o.ADJACENCY, *o.FEATURES, *o.RECORDS, "set"),
    ],
    totals: list[Path] | None = o.TOTALS,
    propose_tables: bool = flag(
        "--propose-tables",
        "Propose tables that give good synthetic records of the features of --table (default: all"
        " declared ones).",
    ),
    printing: o.Printing,
) -> None:
    """Say what publishing some totals exactly means: how many records move together, and how much
    noise that takes.

    Without a budget the noise is shown for epsilon = 1, mu = 1 and rho = 1/2. Without data, it uses
    the declared levels and the public --totals, or the worst possible totals if none are given.
    """
    settings = options.given
    if propose_tables:
        features = features_named(options)
        plan = pairs_planned(features, options)
        scope, counted = o.build_scope(plan, data, options, totals or ())
        print_proposal(scope, counted, features, options, printing)
        return
    features, *more_tables = settings["table"] or [()]
    if not features:
        raise InputError("say which table to analyze: --table sex,region")
    if more_tables:
        raise InputError(
            "analyze looks at one --table; for several that share a budget use release with"
            " --dry-run"
        )
    if data is not None and totals:
        raise InputError("the totals are read from the data: give DATA or --totals, not both")
    # Built before the data are opened: a slip in a name should not cost a long read.
    plan = build_plan(settings, build_requests(Chosen(settings.choices())))
    scope, invariants = o.build_scope(plan, data, options, totals or ())
    budgets = (options.budget(),) if options.spends else REFERENCE
    document = analysis(scope, plan.tables[0].features, budgets, options.report_delta, invariants)
    given_away = review_totals(scope.dataspace) if invariants else None
    document["disclosure"] = None if given_away is None else given_away.to_json()
    printing.warn(scope.warnings)
    if printing.json:
        print_json(document)
    else:
        more = [] if given_away is None else brief_rows(given_away)
        print_rows([*rows(document), *more], width=12)


def analysis(
    scope: Scope,
    features: tuple[str, ...],
    budgets: Sequence[Budget],
    report_delta: Fraction | None,
    known: bool,
) -> dict[str, Any]:
    """Return what is known about the table over `features` under a scope: plain values, all of them
    public.

    Given a `report_delta`, each mechanism's epsilon there is part of it. Where the totals are not
    `known`, the scope is on the safe side of all of them, and its number of records means nothing.
    """
    space = sensitivity_space(scope.dataspace, scope.adjacency, features)
    semi = scope.semi_adjacency
    unknown = {
        "worst_case": None,
        "definition": None,
        "bound": None,
        "method": "given, not checked",
    }
    # For any totals the scope stands on a table of its own, whose records are nobody's.
    document: dict[str, Any] = {"n": scope.dataspace.n if known else None}
    if scope.persons is not None:
        document["persons"] = scope.persons
    document["totals"] = "known" if known else "any"
    document["cells"] = space.schema.size
    document["table"] = list(space.schema.names)
    document["invariants"] = [list(margin.names) for margin in scope.dataspace.margins]
    document["a"] = unknown if semi is None else semi.to_json()
    document["adjacency"] = kind_and_a(scope.adjacency)
    document["sensitivity"] = _sensitivity(space)
    ball = _sensitivity(_ball(space, scope))
    document["sensitivities"] = {"ball": ball, "exchange": _analyze_exchange(space, known)}
    document["naive"] = _norms(space.naive.multiply(space.adjacency.a))
    document["published_exactly"] = space.is_zero
    mechanisms: list[dict[str, Any]] = []
    for budget in budgets:
        for mechanism in _mechanisms(space, budget):
            mechanisms.append(_mechanism_entry(mechanism, budget, report_delta))
    document["mechanisms"] = mechanisms
    witness = find_witness(semi)
    document["witness"] = None if witness is None else witness.to_json()
    document["warnings"] = list(scope.warnings)
    return document


def _mechanism_entry(
    mechanism: Mechanism, budget: Budget, delta: Fraction | None
) -> dict[str, Any]:
    """One mechanism as plain values, with its errors and what it spends."""
    entry = {**mechanism.to_json(), "name": option_name(mechanism), "law": mechanism.name}
    entry["naive_l2"] = 0 if mechanism.space.is_zero else naive_loss(mechanism)
    entry["errors"] = cell_errors(mechanism)
    entry["budget"] = budget.numbers()
    entry["budget_text"] = str(budget)
    if delta is not None:
        entry["epsilon"] = mechanism.guarantee.tradeoff.epsilon(delta)
        entry["report_delta"] = delta
    return entry


def _mechanisms(space: TableSpace, budget: Budget) -> list[Mechanism]:
    """Every mechanism that a release may use. The first is the one that it uses by default."""
    mechanisms = available(space, budget)
    residuals = residual_plan(space, budget, mechanisms[0]) if mechanisms else None
    return [*mechanisms] if residuals is None else [residuals, *mechanisms]


def _sensitivity(space: TableSpace) -> dict[str, Any]:
    sensitivity: dict[str, Any] = {"a": space.adjacency.a, **_norms(space.norms)}
    sensitivity["dimension"] = space.dimension
    sensitivity["exact"] = space.exact
    sensitivity["method"] = space.method
    sensitivity["loss"] = space.l2 * math.sqrt(space.dimension)
    return sensitivity


def _ball(space: TableSpace, scope: Scope) -> TableSpace:
    """The space of any a(t) records, where exchanges were asked for."""
    if scope.adjacency.protects_groups:
        return space
    a = scope.adjacency.a if scope.semi_adjacency is None else scope.semi_adjacency.bound
    return sensitivity_space(space.dataspace, Ball(a, scope.protection), space.schema.names)


def _analyze_exchange(space: TableSpace, known: bool) -> dict[str, Any] | None:
    """What exchanges would need; None where these margins have none, or too few records stand for
    all totals.
    """
    try:
        exchange = Exchange.from_dataspace(space.dataspace, space.adjacency.protection)
    except Refused:
        return None
    # That scope has `a` records in a cell: too few where an exchange changes more.
    if not known and space.adjacency.a < exchange.a:
        return None
    return _sensitivity(sensitivity_space(space.dataspace, exchange, space.schema.names))


def _norms(norms: Norms) -> dict[str, float]:
    return {"l1": norms.l1, "l2": math.sqrt(norms.l2_squared), "linf": norms.linf}


def rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Write the document of `analysis` for people."""
    margins = [" × ".join(names) for names in document["invariants"]]
    published = "; ".join(margins) or "only the number of records"
    any_totals = document["totals"] == "any"
    words = Adjacency.from_json(document["adjacency"]).words
    records = "any totals (upper bounds for all of them)"
    if not any_totals:
        records = count_noun(document["n"], words.one, words.noun)
    features = " × ".join(document["table"])
    lines = [("table", f"{features}: {count_noun(document['cells'], 'cell')}, {records}")]
    lines.append(("published", published))
    lines += [
        ("in short", sentence)
        for sentence in _explain_briefly(document, words.noun, words.protection)
    ]
    lines.append(("", "for specialists:"))
    lines.append(("a(t)", _adjacency(document["a"])))
    if words.protection is not None:
        counted = ""
        if "persons" in document:
            persons = document["persons"]
            counted = f" of {count_noun(persons, words.protection.noun, words.protection.units)}"
        lines.append(("promise", f"{words.protection.who}{counted}"))
    witness = document["witness"]
    if witness is not None:
        lines.append(("worst case", _change(witness["record"], witness["wants"])))
        for other in witness["others"]:
            lines.append(("also moves", _change(other["from"], other["to"])))
    space = document["sensitivity"]
    kind = "exact" if space["exact"] else "proven upper bounds"
    chosen = document["adjacency"]
    is_ball = chosen["kind"] == "ball"
    most = space["a"]
    moved = count_noun(most, words.one, words.noun)
    pairs = f"a = {most}" if is_ball else f"exchange, up to {moved}"
    dimension = f"dimension {space['dimension']:,}"
    lines.append(("sensitivity", f"{pairs}: {_norm_text(space)} ({kind}), {dimension}"))
    lines.append(
        ("", "how far the table moves then: Δ1 all cells added up, Δ2 as a length, Δ∞ in one cell")
    )
    lines += _compare_adjacencies(document["sensitivities"], any_totals, words)
    lines.append(("naive", f"{_norm_text(document['naive'])} (a times one {words.one})"))
    lines += [("noise", _noise_text(mechanism)) for mechanism in document["mechanisms"]]
    lines += [("", text) for text in _NOISE_WORDS]
    if document["published_exactly"]:
        lines.append(
            (
                "note",
                "the published statistics fix this table: everything in it is published exactly",
            )
        )
    if is_ball and words.protection is None:
        a = max(chosen["a"], 1)
        lines.append(
            (
                "next",
                (
                    f"semidp guarantee --rho 1 --adjacency {a}: what a release that states rho = 1"
                    " guarantees here"
                ),
            )
        )
    return lines


def _explain_briefly(
    document: dict[str, Any], noun: str, protection: Protection | None
) -> list[str]:
    """Say for a reader who is no specialist what the exact totals cost, in up to three lines."""
    if document["published_exactly"]:
        return ["The exact totals already fix every cell of this table, so it needs no noise."]
    most = document["sensitivity"]["a"]
    if document["adjacency"]["kind"] != "ball":
        first = "The promise hides one person, and others who hand over published values."
    elif most < 2:
        first = "Nobody's record is tied to another by the exact totals: each is hidden alone."
    else:
        hidden, moved = f"one of the {noun}", f"{most}"
        if protection is not None:
            hidden, moved = protection.who, f"{most} {noun}"
        first = (
            f"To hide {hidden}, up to {moved} must change together, because the exact totals stay"
            " the same."
        )
    gaussian = [entry for entry in document["mechanisms"] if "mu" in entry["budget"]]
    best = min(gaussian or document["mechanisms"], key=lambda entry: float(entry["expected_l2"]))
    second = f"With {best['budget_text']}: {errors_text(best['errors'])}."
    expected = float(best["expected_l2"])
    gain = float(best["naive_l2"]) / expected if expected else 1.0
    third = f"Ordinary differential privacy has {gain:.2g} times the error at the same guarantee."
    return [first, second, third] if gain > 1.05 else [first, second]


def _compare_adjacencies(
    spaces: dict[str, Any], any_totals: bool, words: AdjacencyWords
) -> list[tuple[str, str]]:
    """Both adjacencies side by side, with the loss of Gaussian noise at mu = 1 under each."""
    ball = spaces["ball"]
    exchange = spaces["exchange"]
    a = ball["a"]
    records = f"any {a} {words.noun}" if a != 1 else "any one record"
    of_ball = f"{records} at once (ball): {_describe_sensitivity(ball)}"
    if exchange is not None:
        of_exchange = (
            f"{words.who}, others hand over (exchange): {_describe_sensitivity(exchange)}"
            " (another promise, not a better one)"
        )
    elif any_totals:
        of_exchange = f"{words.who} (exchange): not known without the totals"
    else:
        of_exchange = f"{words.who} (exchange): not defined for these margins"
    return [("protects", of_ball), ("protects", of_exchange)]


def _describe_sensitivity(space: dict[str, Any]) -> str:
    """Say how far the pairs of an adjacency move the table, and what noise that takes."""
    return f"Δ2 = {space['l2']:.4g}, the whole table off by {space['loss']:.4g} at mu = 1"


def _adjacency(a: dict[str, Any]) -> str:
    if a["bound"] is None:
        return "not known for these invariants; the given number is used"
    literal = ""
    if a["definition"] is not None:
        literal = f", {a['definition']} if the paper's definition is read literally"
    worst = f"at most {a['bound']}"
    if a["worst_case"] is not None:
        worst = f"{a['bound']} in the worst case"
    return f"records that change together: {worst}{literal} ({a['method']})"


def _change(before: dict[str, str], after: dict[str, str]) -> str:
    levels_before = ", ".join(before.values())
    levels_after = ", ".join(after.values())
    return f"({levels_before}) → ({levels_after})"


def _norm_text(norms: dict[str, Any]) -> str:
    return f"Δ1 = {norms['l1']}, Δ2 = {norms['l2']:.4g}, Δ∞ = {norms['linf']}"


_NOISE_WORDS = (
    "off by: the expected distance from the truth, of one cell or of the whole table as a length",
    "exact claim: proved of the whole numbers that are drawn; ideal claim: of real-valued noise,"
    " before it is rounded",
)
"""What the lines of noise mean, for somebody who sees them for the first time."""


def _noise_text(mechanism: dict[str, Any]) -> str:
    loss = (
        f"{errors_text(mechanism['errors'])}; scale {mechanism['scale']:.4g}, whole table off by "
    )
    loss += f"{mechanism['expected_l2']:.4g}, {mechanism['claim']} claim"
    name = mechanism["law"]
    # the option by which the law is chosen, where its name does not say so
    if mechanism["name"] not in name:
        name = f"{name} ({mechanism['name']})"
    if "epsilon" in mechanism:
        epsilon = format_rounded_up(mechanism["epsilon"])
        loss += f", epsilon {epsilon} at delta {plain(mechanism['report_delta'])}"
    return f"{mechanism['budget_text']}: {name}, {loss}"


@command
def compare(
    *,
    plans: list[Path] = argument("Two plans or more (TOML or JSON).", "PLAN PLAN..."),
    data: o.Text = option(
        "The data, as for release; only what a plan publishes exactly is read. Without data the"
        " totals are those of --totals, or the worst possible ones.",
        "DATA",
    ),
    totals: list[Path] | None = o.TOTALS,
    options: Annotated[o.Options, ("from_table", *o.BUDGET, "set")],
    printing: o.Printing,
) -> None:
    """Put plans side by side: the error of every table, the guarantee, and what would be announced
    if the exact totals were ignored.

    A budget here is for plans that have none. Nothing is drawn, spent or written.
    """
    if len(plans) < 2:
        raise InputError("give two plans or more to compare")
    if data is not None and totals:
        raise InputError("the totals are read from the data: give --data or --totals, not both")
    named: list[tuple[str, Outlook]] = []
    documents = []
    for path in plans:
        plan, held = o.read_plan_file(path, "compare", {})
        # A plan that states its budget keeps it: that is what is compared.
        if options.spends and not all(request.budget for request in plan.requests):
            plan = plan.with_budget(options.budget())
        with o.about_file(path):
            reading = options.with_held(held)
            scope, invariants = o.build_scope(plan, data, reading, totals or ())
        printing.warn([f"{path}: {text}" for text in (*scope.warnings, *scope.disclosures)])
        with o.about_file(path):
            seen = forecast(calibrate(plan, scope))
        named.append((path.name, seen))
        # Where any totals are meant, the number of records is one of many.
        records = {} if invariants else {"n": None}
        documents.append(
            {
                "plan": str(path),
                **seen.document,
                **records,
                "totals": "known" if invariants else "any",
            }
        )
    if printing.json:
        print_json({"plans": documents})
    else:
        _print(named)


def _print(plans: list[tuple[str, Outlook]]) -> None:
    names = [harmless(name) for name, _ in plans]
    table = grid(["", *names], padding=(0, 2, 1, 0))
    for label, cells in comparison([seen for _, seen in plans]):
        table.add_row(harmless(label), *map(harmless, cells))
    print_grid(table)


@command
def explore(
    *,
    data: o.Text = o.OPTIONAL_DATA,
    port: int = option(
        "The port of the page on 127.0.0.1; 0 is any free one.", "N", default=0, min=0, max=65535
    ),
    no_browser: bool = flag("--no-browser", "Only print the address; open no browser."),
    plan: Path | None = option("The plan to start with (TOML or JSON).", "FILE"),
    options: Annotated[o.Options, (*o.FEATURES[:-1], *o.RECORDS, "ledger", "set")],
    totals: list[Path] | None = o.TOTALS,
) -> None:
    """Open a page that shows what a plan would publish: its errors, its guarantee, what each choice
    costs.

    It is served to this machine only, until Ctrl-C. Its address, with the token that opens it, is
    the only line on stdout. Without data it works from declared levels and public --totals.
    """
    try:
        import starlette as _starlette  # noqa: F401
        import uvicorn as _uvicorn  # noqa: F401
    except ImportError:
        raise InputError("the page needs Starlette and uvicorn: install semidp[explore]") from None
    if data is not None and totals:
        raise InputError("the totals are read from the data: give DATA or --totals, not both")
    first = options.describe()
    if plan is not None:
        # Options beside a plan might contradict it, and the page shows only one of the two.
        if first != Plan():
            raise InputError(
                "--plan already says how the data are read: leave the other options out"
            )
        first, held = o.read_plan_file(plan, "--plan", {})
        options = options.with_held(held)
        if first.units is not None:
            raise InputError(
                "the page plans records of one kind: look at linked members and units with"
                " semidp release --dry-run"
            )
    desk = _without_data(first, totals or ()) if data is None else _with_data(data, first, options)
    from semidp.present.explore.explorer_page import serve

    serve(desk, port, browser=not no_browser, announce=_announce)


def _announce(address: str) -> None:
    import sys

    # The only line on stdout, flushed: whoever started this waits for the address.
    echo(address)
    sys.stdout.flush()


def _with_data(data: str, first: Plan, options: o.Options) -> "PlanForecasts":
    from semidp.present.forecasts import PlanForecasts

    ledger = options.given["ledger"]

    def carry_out(plan: Plan, folder: Path) -> Release:
        inputs = [
            *local_paths(data, options.given["from_table"]),
            *([] if ledger is None else [str(ledger)]),
        ]
        # The page never replaces anything: a click is too little to lose a release.
        check_place(folder, force=False, ours=release_files, inputs=inputs)
        # A book for each release: what is told of a failure is what this book has charged.
        book = o.open_ledger(ledger, quiet=True)
        noted = o.note_command(data, options.given)
        running = RunOptions(ledger=book, out=folder, inputs=inputs, command=noted)
        try:
            with charge_said(book), options.source(plan, data) as source:
                return run_plan(Release, plan, source, running)
        except SemidpError as error:
            raise InputError(append_hint(error)) from None

    with options.source(first, data) as source:
        columns = source.columns()
    return PlanForecasts(
        columns,
        lambda plan: o.build_scope(plan, data, options, ())[0],
        first,
        source=data,
        carry_out=carry_out,
    )


def _without_data(first: Plan, totals: Sequence[Path]) -> "PlanForecasts":
    from semidp.present.forecasts import PlanForecasts

    space = o.read_totals(totals, first) if totals else None
    schema = o.choose_schema(space, first)
    if schema is None:
        raise InputError(
            "give DATA, or what is public without it: --schema FILE or --levels, and --totals FILE"
        )
    # The page starts with everything ticked that is public anyway.
    if space is not None and not first.invariants:
        first = evolve(first, invariants=space.margins)
    return PlanForecasts(
        schema.names,
        lambda plan: o.build_scope(plan, None, o.Options(), totals)[0],
        first,
    )
