"""``semidp explore``: a page of this machine that shows what a plan would publish before anything
is spent.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from attrs import evolve

import semidp.cli._options as o
from semidp.cli._command import command, flag, option
from semidp.cli._output import append_hint, charge_said, echo
from semidp.errors import InputError, SemidpError
from semidp.present.release import Release
from semidp.publish.folders import check_place
from semidp.publish.pipeline import RunOptions, run_plan
from semidp.publish.plan import Plan
from semidp.publish.release_files import release_files
from semidp.publish.sources.opening import local_paths

if TYPE_CHECKING:
    from semidp.present.explore.plan_forecasts import PlanForecasts


@command
def explore(
    *,
    data: o.Text = o.OPTIONAL_DATA,
    port: int = option(
        "Where to listen on 127.0.0.1; any free one unless given.", default=0, min=0, max=65535
    ),
    no_browser: bool = flag("--no-browser", "Only print the address; open no browser."),
    plan: Path | None = option("The plan to start with (TOML or JSON).", "FILE"),
    options: Annotated[o.Options, (*o.FEATURES[:-1], *o.RECORDS, "ledger", "set")],
    totals: list[Path] | None = o.TOTALS,
) -> None:
    """Open a page that shows what a plan would publish: its errors, its guarantee, what each choice
    costs.

    It is served to this machine only. Its address, with the token that opens it, is the only line
    on stdout; an interrupt ends it. Without data it works from declared levels and public --totals.
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
    from semidp.present.explore.plan_forecasts import PlanForecasts

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
    from semidp.present.explore.plan_forecasts import PlanForecasts

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
