"""The requests of the page and their answers. It is served on 127.0.0.1 to one browser on this
machine and to nobody else, until an interrupt.

Every address holds a token, every request must name this host and come from this page, and nothing
on the page asks for anything elsewhere. The browser opens without showing the token to other users.
What the page shows is a function of the plan and of the totals that the plan publishes exactly.
"""

import base64
import contextlib
import hashlib
import hmac
import html
import json
import secrets
import shlex
import signal
import socket
import tempfile
import traceback
import webbrowser
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from attrs import evolve
from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from semidp._version import __version__
from semidp.errors import InputError, SemidpError
from semidp.present.disclosure_words import disclosure_sections
from semidp.present.explore.controls import (
    CONTROL,
    KINDS,
    LADDER,
    Controls,
    card_controls,
    laid_out,
    list_offered_fields,
    list_outcomes,
    variants,
)
from semidp.present.forecasts import PlanForecasts, comparison
from semidp.present.report.report_page import moves, search_script
from semidp.present.report.sentences import counted_text
from semidp.promise.documents import from_json
from semidp.promise.exact import exact, format_rounded_up, plain
from semidp.promise.system import ENDING_SIGNALS
from semidp.promise.tradeoff.composition import tradeoff_from_json
from semidp.publish.pipeline import CHARGE_IN_DOUBT, CHARGE_STANDS
from semidp.publish.plan import Plan
from semidp.publish.release_files import REPORT, release_files
from semidp.publish.results.texts import share_text, short_text
from semidp.publish.settings import name_options

MOST_SCENARIOS = 3
_LONGEST_FORM = 2**22  # bytes: a plan with many declared levels
_MOST_FIELDS = 20_000
_SHORT_NUMBER = 12  # characters of a number that somebody is asked to type
_LONGEST_LINE = 4_000  # characters: a path; Python reads no longer number either
ONE_LINERS = (
    "kind",
    "step",
    "number",
    "adjacency",
    "delta",
    "report_delta",
    "typed",
    "folder",
    "add",
    "variant",
    "which",
    "without",
)
"""Fields of the form that hold one line of text."""
_STATIC = {
    "htmx.min.js": "text/javascript",
    "style.css": "text/css",
    "htmx-LICENSE.txt": "text/plain",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NOTHING = "Tick the features of a table: what it would look like is shown here."

Fields = list[tuple[str, str]]


class Guard:
    """Refuses requests that name another host, come from another page, or lack the token."""

    def __init__(self, app: Any, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await PlainTextResponse(refusal, 403, _HEADERS)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _refusal(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        # A page elsewhere may give its own name this address (DNS rebinding); its host betrays it.
        if host not in self.hosts:
            return "This page answers to 127.0.0.1 only."
        first_part = request.url.path.split("/")[1]
        # Compared in constant time: how long it takes must not say how much of it is right.
        if not hmac.compare_digest(first_part.encode(), self.token.encode()):
            return "The address lacks its token: use the one that semidp explore printed."
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site")
        if origin is not None and origin != f"http://{host}":
            return "The request comes from another page."
        # Browsers name the page with every POST: what names none is no form of ours.
        if request.method != "GET" and origin is None:
            return "The request does not say which page it comes from."
        # The page that opens the browser is a file of this machine, and leads here from outside.
        opened = request.headers.get("sec-fetch-mode") == "navigate" and request.method == "GET"
        if site in ("cross-site", "same-site") and not opened:
            return "The request comes from another page."
        return None


class Page:
    """The answers of the page for one `PlanForecasts`.

    Releases that were made here are kept by their number, so that their reports can be read.
    """

    def __init__(self, desk: PlanForecasts) -> None:
        self.desk = desk
        self.releases: list[Path] = []
        loader = PackageLoader("semidp.present.explore")
        escape = select_autoescape(default=True)
        self._templates = Environment(
            loader=loader, autoescape=escape, trim_blocks=True, lstrip_blocks=True
        )
        self._templates.filters["short"] = short_text
        self._templates.filters["percent"] = share_text

    # --- what is shown ----------------------------------------------------------------------------

    def render_page(self, plan: Plan) -> str:
        """Return the page for a plan."""
        return self._render(
            "page.html.j2", **self._form(plan), **self._results(plan), version=__version__
        )

    def form(self, fields: Fields) -> str:
        """Return the form anew, after a set of features was added or removed."""
        base = self._base(fields)
        action = dict(fields)
        # a control called remove would hide what a form has of that name
        removed = action.get("without")
        if removed:
            fields = _remove_control(fields, removed)
        try:
            controls = Controls.of_form(fields, self.desk.columns)
            plan = controls.plan(base, self.desk.columns)
            chosen = controls.choose_missing(plan)
        except SemidpError as error:
            return self._render(
                "form.html.j2",
                **self._form(base),
                error=name_options(error.message),
                seen=None,
                plan=None,
            )
        add = action.get("add", "")
        if add == "which":
            add = action.get("which", "")
        extra = action.get("add-total", "")
        if extra:
            totals = (*controls.totals, tuple(extra.split(",")))
            plan = evolve(controls, totals=totals).plan(base, self.desk.columns)
            chosen = controls.choose_missing(plan)
        scenarios = [] if add == "forget" else self._scenarios(fields)
        # The cards show the plan without these choices, which are kept beside it.
        form = self._form(plan, add, dict(controls.missing))
        return self._render("form.html.j2", **form, **self._results(chosen, scenarios))

    def results(self, fields: Fields) -> str:
        """Return what the chosen plan would publish, with the parts of the form that depend on
        it.
        """
        try:
            plan, controls = self._plan(fields)
        except SemidpError as error:
            return self._render(
                "results.html.j2", error=name_options(error.message), seen=None, plan=None, oob=True
            )
        shown = self._results(plan, self._scenarios(fields))
        shown["controls"] = controls
        shown["outcomes"] = list_outcomes(controls.plan(self._base(fields), self.desk.columns))
        shown["missing"] = dict(controls.missing)
        shown["amount"] = plain(controls.amount)
        shown["oob"] = True
        return self._render("results.html.j2", **shown)

    def keep(self, fields: Fields) -> str:
        """Return the scenarios with one more: the plan that is chosen, or a variant of it."""
        kept = self._scenarios(fields)
        try:
            plan, _ = self._plan(fields)
            which = dict(fields).get("variant", "")
            name = which or f"plan {len(kept) + 1}"
            scenario = variants(plan)[which] if which else plan
            self.desk.forecast(scenario)
            kept = [*kept, (name, scenario)][-MOST_SCENARIOS:]
        except (SemidpError, KeyError) as error:
            said = (
                name_options(error.message)
                if isinstance(error, SemidpError)
                else "there is no such variant"
            )
            return self._render(
                "scenarios.html.j2", **self._compare_scenarios(None, kept), scenario_error=said
            )
        return self._render("scenarios.html.j2", **self._compare_scenarios(plan, kept))

    def costs(self, fields: Fields) -> str:
        """Return what each further exact total would cost."""
        try:
            plan, _ = self._plan(fields)
            tables = self.desk.forecast(plan).document["tables"]
            now = {table["name"]: table for table in tables}
            further = self.desk.further(plan)
        except SemidpError as error:
            return self._render("costs.html.j2", further=None, error=name_options(error.message))
        return self._render("costs.html.j2", further=further, now=now)

    def release(self, fields: Fields) -> str:
        """Carry the chosen plan out, once its budget was typed."""
        single = dict(fields)
        try:
            plan, _ = self._plan(fields)
            if self.desk.carry_out is None:
                raise InputError("there are no data to release: start semidp explore with them")
            # A click may be a slip, and what is spent does not come back: the budget is typed.
            check_typed(plan, single.get("typed", ""))
            named = single.get("folder", "").strip()
            if not named:
                raise InputError("say into which folder the release goes")
            folder = Path(named)
            done = self.desk.carry_out(plan, folder)
        except SemidpError as error:
            return self._render("released.html.j2", error=name_options(error.message), number=None)
        self.releases.append(folder)
        charge = None if done.ledger is None else done.ledger["number"]
        return self._render(
            "released.html.j2",
            error=None,
            number=len(self.releases),
            folder=str(folder),
            report=REPORT,
            charge=charge,
        )

    def export_plan(self, name: str, fields: Fields) -> bytes:
        """Return the chosen plan as a file: itself, the command line that carries it out, or a
        notebook.
        """
        plan, _ = self._plan(fields)
        if name == "plan.toml":
            return plan.to_toml().encode()
        if name == "release.sh":
            return f"#!/bin/sh\n{self._command()}\n".encode()
        return notebook(plan, self.desk.source).encode()

    # --- parts ------------------------------------------------------------------------------------

    def _render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(**values)

    def _base(self, fields: Fields) -> Plan:
        return _read(dict(fields).get("base", "{}"))

    def _plan(self, fields: Fields) -> tuple[Plan, Controls]:
        controls = Controls.of_form(fields, self.desk.columns)
        plan = controls.plan(self._base(fields), self.desk.columns)
        return controls.choose_missing(plan), controls

    def _scenarios(self, fields: Fields) -> list[tuple[str, Plan]]:
        names = [value for name, value in fields if name == "scenario-name"]
        plans = [_read(value) for name, value in fields if name == "scenario"]
        return list(zip(names, plans, strict=False))[-MOST_SCENARIOS:]

    def _form(
        self, plan: Plan, add: str = "", missing: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        source = self.desk.source
        columns = self.desk.columns
        controls = Controls.of_plan(plan, columns)
        not_features = (plan.count, plan.id)
        readable = [name for name in columns if name not in not_features]
        totals: list[tuple[str, ...]] = [*controls.totals]
        # an empty line to fill in: where it was asked for, and where there is no total yet
        if add == "total" or not totals:
            totals.append(())
        form: dict[str, Any] = {"controls": controls, "kinds": KINDS, "totals": totals}
        form["base"] = json.dumps(plan.to_json())
        form["amount"] = plain(controls.amount)
        form["cards"] = card_controls(controls.cards, add)
        form["offered"] = [(field.name, field.label) for field in list_offered_fields()]
        form["columns"] = [name for name in readable if name not in plan.outcomes]
        form["readable"] = readable if source else None
        form["last"] = len(LADDER) - 1
        form["others"] = [request.name for request in laid_out(plan, columns).others]
        form["outcomes"] = list_outcomes(plan)
        form["missing"] = missing or {}
        form["source"] = Path(source).name if source else None
        form["protection"] = plan.protection
        form["checked_id"] = plan.id
        return form

    def _results(self, plan: Plan, scenarios: Sequence[tuple[str, Plan]] = ()) -> dict[str, Any]:
        """Return everything that is said about a plan; what is missing or wrong is a sentence."""
        values: dict[str, Any] = {"plan": plan, "error": None, "seen": None}
        values |= {"hidden": (), "oob": False}
        values |= self._compare_scenarios(plan, scenarios)
        values["toml"] = plan.to_toml()
        values["command"] = self._command()
        values["can_release"] = self.desk.carry_out is not None
        if not plan.requests:
            values["error"] = _NOTHING
            return values
        try:
            prepared, outlook = self.desk.prepare_forecast(plan)
        except SemidpError as error:
            values["error"] = name_options(error.message)
            values["can_declare"] = error.needs in ("levels", "null level")
            if error.needs in ("levels", "nested levels", "null level"):
                values["hidden"] = error.names
            return values
        seen = outlook.document
        curves = {"this plan": seen["guarantee"]}
        if seen["announced"] is not None:
            curves["if the totals were ignored"] = seen["announced"]
        stated = [key for key in ("guarantee", "announced") if seen[key]]
        values["seen"] = seen
        values["statistics"] = outlook.beside_tables()
        values["delta"] = plain(seen["report_delta"])
        values["epsilon"] = {key: _epsilon(seen[key]) for key in stated}
        values["curve"] = curve_svg(curves)
        values["curves"] = list(curves)
        values["moves"] = moves(prepared.scope)
        values["counted"] = counted_text(prepared.scope)
        values["given_away"] = disclosure_sections(prepared.scope)
        values["typed"] = _format_budget(plan)
        return values

    def _compare_scenarios(
        self, plan: Plan | None, scenarios: Sequence[tuple[str, Plan]]
    ) -> dict[str, Any]:
        """Return the scenarios beside the chosen plan, line by line."""
        chosen = plan if plan is not None and plan.requests else None
        named = [*scenarios]
        if chosen is not None and scenarios:
            named.insert(0, ("now", chosen))
        columns = []
        seen = []
        for name, one in named:
            try:
                seen.append(self.desk.forecast(one))
                columns.append(name)
            except SemidpError:
                continue
        kept = []
        for name, one in scenarios:
            kept.append((name, json.dumps(one.to_json())))
        offered = list(variants(chosen)) if chosen is not None else []
        compared = comparison(seen) if len(seen) > 1 else []
        return {
            "scenarios": kept,
            "variants": offered,
            "compared": compared,
            "compared_names": columns,
        }

    def _command(self) -> str:
        data = self.desk.source or "DATA"
        return f"semidp release {shlex.quote(data)} --plan plan.toml --out release"


def application(desk: PlanForecasts, token: str, port: int) -> Starlette:
    """Return the page as an ASGI application; `token` is the first part of every address."""
    page = Page(desk)

    def make_endpoint(answer: Callable[[Fields], str]) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            fields = await _fields(request)
            return _html(await run_in_threadpool(answer, fields))

        return respond

    async def start(request: Request) -> Response:
        return _html(await run_in_threadpool(page.render_page, desk.first))

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise _missing()
        content = files("semidp.present.explore").joinpath("static", name).read_bytes()
        return Response(
            content,
            media_type=_STATIC[name],
            headers={**_HEADERS, "Content-Security-Policy": _POLICY},
        )

    async def save(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ("plan.toml", "release.sh", "plan.ipynb"):
            raise _missing()
        content = await run_in_threadpool(page.export_plan, name, await _fields(request))
        headers = {**_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def serve_release_file(request: Request) -> Response:
        number = request.path_params["number"]
        name = request.path_params["name"]
        numbered = {str(place): folder for place, folder in enumerate(page.releases, start=1)}
        folder = numbered.get(number)
        # Only files that a release lists are served: a name must not lead out of its folder.
        if folder is None or name not in release_files(folder):
            raise _missing()
        headers = {**_HEADERS, "Content-Security-Policy": _report_policy()}
        return FileResponse(folder / name, headers=headers)

    answers = {
        "results": page.results,
        "form": page.form,
        "keep": page.keep,
        "costs": page.costs,
        "release": page.release,
    }
    routes = [Route(f"/{token}/", start), Route(f"/{token}/static/{{name}}", static)]
    for path, answer in answers.items():
        routes.append(Route(f"/{token}/{path}", make_endpoint(answer), methods=["POST"]))
    routes.append(Route(f"/{token}/save/{{name}}", save, methods=["POST"]))
    routes.append(Route(f"/{token}/releases/{{number}}/{{name}}", serve_release_file))
    guard = Middleware(Guard, token=token, port=port)
    handlers = {SemidpError: _respond_refusal, Exception: _respond_failure}
    return Starlette(routes=routes, exception_handlers=handlers, middleware=[guard])


def check_typed(plan: Plan, typed: str) -> None:
    """Refuse a release unless the budget that it spends was typed: ``mu = 1``, ``mu 1`` or ``1``.

    >>> from semidp.publish.statistics.tables.asked import TableRequest
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> plan = Plan([TableRequest(["sex"], Budget.gdp(1))])
    >>> check_typed(plan, "mu = 1.0")
    >>> check_typed(plan, "2")
    Traceback (most recent call last):
    semidp.errors.InputError: the release would spend mu = 1, and that is not what was typed
    """
    expected = _format_budget(plan)
    if expected is None:
        raise InputError(
            "the parts of this plan have budgets of different kinds: release it on the command line"
        )
    name, _, number = expected.partition(" = ")
    words = typed.replace("=", " ").replace(",", " ").split()
    if not words:
        raise InputError(f"type the budget that the release spends: {expected}")
    budget_words = number.replace(",", " ").replace("delta =", " ").split()
    numbers = [word for word in words if word not in (name, "delta")]
    try:
        typed_numbers = [exact(word, "the budget") for word in numbers]
        same = typed_numbers == [exact(word, "the budget") for word in budget_words]
    except InputError:
        same = False
    other_kind = any(word in KINDS and word != name for word in words)
    if not same or other_kind:
        raise InputError(f"the release would spend {expected}, and that is not what was typed")


def curve_svg(curves: dict[str, dict[str, Any]]) -> Markup:
    """Draw tradeoff functions: misses of the best attacker against false alarms. Colours are those
    of the page.
    """
    # curves bend most where false alarms are few: more points there
    few_alarms = np.linspace(0, 0.04, 25)
    alarms = np.concatenate([few_alarms, np.linspace(0.05, 1, 60)])
    paths = []
    for place, stated in enumerate(curves.values()):
        tradeoff = tradeoff_from_json(stated["tradeoff"])
        misses = np.asarray(tradeoff(1 - alarms), dtype=float)
        across = 50 + 200 * alarms
        down = 10 + 200 * (1 - misses)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
        paths.append(f'<polyline class="curve{place}" points="{points}"/>')
    labels = []
    for share in (0, 0.5, 1):
        x = f"{50 + 200 * share:.0f}"
        y = f"{214 - 200 * share:.0f}"
        labels.append(f'<text x="{x}" y="226" text-anchor="middle">{share:.0%}</text>')
        labels.append(f'<text x="45" y="{y}" text-anchor="end">{share:.0%}</text>')
    ticks = "".join(labels)
    return Markup(
        '<svg viewBox="0 0 270 250" role="img" aria-labelledby="curve-title"><title'
        ' id="curve-title">Misses of the best attacker against false alarms; on the diagonal they'
        ' guess</title><path class="axis" d="M50 10V210H250"/><path class="guess" d="M50 10L250'
        f' 210"/>{"".join(paths)}{ticks}<text x="150" y="244" text-anchor="middle">false'
        ' alarms</text><text x="10" y="110" text-anchor="middle" transform="rotate(-90 10'
        ' 110)">misses</text></svg>'
    )


def notebook(plan: Plan, source: str | None) -> str:
    """Return a notebook that carries a plan out, as JSON.

    >>> document = json.loads(notebook(Plan(), "people.csv"))
    >>> document["nbformat"], [cell["cell_type"] for cell in document["cells"]]
    (4, ['markdown', 'code', 'code', 'code', 'markdown', 'code'])
    """
    data = json.dumps(source or "DATA", ensure_ascii=False)
    cells = [
        (
            "markdown",
            (
                "# What is exact, what is protected\n\nMade by `semidp explore`. The plan holds no"
                " data."
            ),
        ),
        ("code", f"import semidp\n\nplan = semidp.Plan.from_toml({plan.to_toml()!r})\nplan"),
        (
            "code",
            (
                f"prepared = semidp.prepare(plan, {data})  # nothing is drawn and nothing is"
                " spent\nprepared.guarantee"
            ),
        ),
        ("code", "prepared.scope.semi_adjacency"),
        ("markdown", "The next cell spends the budget of the plan, every time that it is run."),
        ("code", f"release = semidp.run(plan, {data})\nrelease.save('release')\nrelease"),
    ]
    written: list[dict[str, Any]] = []
    for place, (kind, text) in enumerate(cells):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{place}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        if kind == "code":
            cell |= {"outputs": [], "execution_count": None}
        written.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": written,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _remove_control(fields: Fields, control: str) -> Fields:
    """Return the fields of a form without a control and those that belong to it."""
    kept = []
    for name, value in fields:
        if name != control and not name.startswith(f"{control}-"):
            kept.append((name, value))
    return kept


def _missing() -> HTTPException:
    return HTTPException(404, "There is no such file.", _HEADERS)


def _respond_refusal(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 409, _HEADERS)


def _respond_failure(request: Request, error: Exception) -> Response:
    """Say that something went wrong: what an exception says may quote data, so only its kind and
    place are shown.
    """
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    notes = getattr(error, "__notes__", ())
    told = [note for note in (CHARGE_STANDS, CHARGE_IN_DOUBT) if note in notes]
    charged = f"; {told[0]}: semidp ledger says how to finish it" if told else ""
    sentence = f"internal error ({type(error).__name__} at {where}){charged}"
    return PlainTextResponse(sentence, 500, _HEADERS)


async def _fields(request: Request) -> Fields:
    # Counted while it arrives: its stated length may be wrong or missing.
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            raise InputError("the form is too long")
    text = bytes(body).decode("utf-8", "replace")
    if text.count("&") + text.count(";") >= _MOST_FIELDS:
        raise InputError(
            f"the form has more than {_MOST_FIELDS:,} fields: keep the levels in a schema file"
        )
    fields = parse_qsl(text, keep_blank_values=True)
    for name, value in fields:
        if "\x00" in name or "\x00" in value:
            raise InputError(
                "the form holds a character that no name and no number has: type it again"
            )
        one_line = name in ONE_LINERS or CONTROL.fullmatch(name)
        if one_line and len(value) > _LONGEST_LINE:
            raise InputError(
                f"a field of the form has more than {_LONGEST_LINE:,} characters: type it again"
            )
    return fields


def _report_policy() -> str:
    """Allow a report its own styles, its pictures, and the one script that it may have."""
    script_hash = hashlib.sha256(search_script().encode())
    digest = base64.b64encode(script_hash.digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src"
        " data:; connect-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )


def _html(text: str) -> Response:
    return Response(
        text, media_type="text/html", headers={**_HEADERS, "Content-Security-Policy": _POLICY}
    )


def _read(text: str) -> Plan:
    try:
        document = from_json(text)
    except ValueError:
        raise InputError("the form does not hold a plan: reload the page") from None
    if not isinstance(document, dict):
        raise InputError("the form does not hold a plan: reload the page")
    return Plan.from_json(document)


def _format_budget(plan: Plan) -> str | None:
    budget = plan.budget
    if budget is None:
        return None
    parts = []
    for name, value in budget.keys().items():
        # The parts of a shared mu are rounded down, so that their sum is a long fraction just below
        # what was chosen.
        shown = value if len(value) <= _SHORT_NUMBER else format_rounded_up(Fraction(value))
        parts.append(f"{name} = {shown}")
    return ", ".join(parts)


def _epsilon(stated: dict[str, Any]) -> str:
    epsilon = stated["epsilon"]
    return "none" if epsilon is None else format_rounded_up(Fraction(epsilon))


def serve(
    desk: PlanForecasts, port: int, *, browser: bool, announce: Callable[[str], None]
) -> None:
    """Serve the page until an interrupt; `announce` is given its address once it can be opened."""
    import uvicorn

    # Other users of the machine reach 127.0.0.1, too: only the token keeps them out.
    token = secrets.token_urlsafe(24)
    # Bound before it is announced, so that nobody else can take the port in between.
    with _listening(port) as listener:
        bound_port = listener.getsockname()[1]
        settings = uvicorn.Config(
            application(desk, token, bound_port),
            log_level="critical",  # what an exception says may quote data
            access_log=False,  # addresses hold the token
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(settings)
        where = f"http://127.0.0.1:{bound_port}/{token}/"
        announce(where)
        with (
            _open_browser(where) if browser else contextlib.nullcontext(),
            contextlib.suppress(KeyboardInterrupt),
        ):
            for number in ENDING_SIGNALS:
                if number not in uvicorn.server.HANDLED_SIGNALS:  # the server handles these itself
                    signal.signal(number, server.handle_exit)
            server.run(sockets=[listener])


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(32)
        except OSError:
            raise InputError(
                f"port {port} of 127.0.0.1 is taken: choose another one, or 0 for any"
            ) from None
        yield listener


@contextlib.contextmanager
def _open_browser(where: str) -> Iterator[None]:
    """Open the browser on a page of this user's that leads there: other users see the words of a
    command.
    """
    with tempfile.TemporaryDirectory(prefix="semidp-explore-") as folder:
        lead = Path(folder) / "open.html"
        target = html.escape(where, quote=True)
        lead.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={target}"><a'
            f' href="{target}">semidp</a>',
            encoding="utf-8",
            newline="\n",
        )
        # The folder is this user's alone, and so is the file with the token in it.
        lead.chmod(0o600)
        webbrowser.open(lead.as_uri())
        yield
