"""The page of ``semidp explore`` without a browser: who may ask, what it says, and what it never
says.
"""

import html
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import evolve
from starlette.testclient import TestClient

from semidp import Budget, Feature, InputError, Ledger, Plan, Schema, Table, prepare
from semidp.cli._options import Options
from semidp.cli.analyze import _with_data, _without_data
from semidp.present.explore.controls import LADDER, Controls, laid_out, variants
from semidp.present.explore.explorer_page import Page, application, check_typed
from semidp.present.forecasts import PlanForecasts, forecast
from semidp.present.release import Release
from semidp.promise.guarantee import Scope
from semidp.promise.schema.outcome import Outcome
from semidp.promise.spaces.dataspace import Margin
from semidp.publish import TableRequest, block_run
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.protocol.statistic import Chosen, build_requests
from semidp.publish.statistics.quantiles import QuantileRequest
from semidp.publish.statistics.regression.kind import RegressionRequest
from semidp.publish.statistics.sums import GroupRequest
from semidp.publish.statistics.tables.request import TablesRequest
from tests.cli.conftest import Semidp

pytestmark = pytest.mark.pictures

TOKEN, PORT = "token-of-the-test", 8765
OWN = f"http://127.0.0.1:{PORT}"
HEADERS = {"origin": OWN}
MU_1 = str(LADDER.index(1))
TABLE = [("table-0", "sex"), ("table-0", "region")]
BASE = [("kind", "mu"), ("step", MU_1), ("adjacency", "worst-case"), ("report_delta", "1e-9")]


def records() -> str:
    """41 records: the counts of cells are primes of their own, so that any of them would be
    seen.
    """
    cells = {("f", "n"): 1013, ("f", "s"): 2029, ("m", "n"): 3041, ("m", "s"): 4057}
    return "sex,region,people\n" + "".join(
        f"{sex},{region},{count}\n" for (sex, region), count in cells.items()
    )


SECRETS = ("1013", "1,013", "2029", "2,029", "3041", "3,041", "4057", "4,057")
REGIONS = ("4054", "4,054", "6086", "6,086")  # the totals of the regions
SEXES = ("3042", "3,042", "7098", "7,098")


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text(records())
    return tmp_path / "people.csv"


def client_of(first: Plan, data: Path) -> TestClient:
    desk = _with_data(str(data), first, Options())
    return TestClient(application(desk, TOKEN, PORT), base_url=OWN, headers=HEADERS)


@pytest.fixture
def client(people: Path) -> Iterator[TestClient]:
    with client_of(Plan(count="people"), people) as found:
        yield found


def fields(plan: Plan, *more: tuple[str, str], **changed: str) -> str:
    known = [(name, changed.get(name, value)) for name, value in BASE]
    return urlencode([("base", json.dumps(plan.to_json())), *known, *more])


def post(client: TestClient, where: str, body: str, **headers: str) -> Any:
    return client.post(
        f"/{TOKEN}/{where}",
        content=body,
        headers={"content-type": "application/x-www-form-urlencoded", **headers},
    )


PEOPLE_PLAN = Plan(count="people")
SEX_EXACT = [*TABLE, ("total-0", "sex"), ("levels-region", "n, s")]


# --- who may ask ----------------------------------------------------------------------------------


def test_the_page_opens_with_its_token(client: TestClient) -> None:
    answer = client.get(f"/{TOKEN}/")
    assert answer.status_code == 200
    assert "See it before you spend it" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path",
    ["/", "/wrong/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", "/static/htmx.min.js", "/results", "/%00/"],
)
def test_without_its_token_nothing_is_answered(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 403
    assert client.post(path).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"evil.example:{PORT}", ""]
)
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    """A name that an attacker lets point to 127.0.0.1 is another host."""
    assert client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", f"http://127.0.0.1:{PORT + 1}", f"https://127.0.0.1:{PORT}"],
)
def test_a_foreign_origin_is_refused(client: TestClient, origin: str) -> None:
    assert (
        post(client, "results", fields(PEOPLE_PLAN, *SEX_EXACT), origin=origin).status_code == 403
    )
    assert client.get(f"/{TOKEN}/", headers={"origin": origin}).status_code == 403


def test_a_post_says_where_it_comes_from(people: Path) -> None:
    desk = _with_data(str(people), PEOPLE_PLAN, Options())
    with TestClient(application(desk, TOKEN, PORT), base_url=OWN) as client:
        assert client.post(f"/{TOKEN}/results").status_code == 403
        assert client.get(f"/{TOKEN}/").status_code == 200


def test_other_sites_may_open_it_and_nothing_else(client: TestClient) -> None:
    crossing = {"sec-fetch-site": "cross-site"}
    assert (
        client.get(f"/{TOKEN}/", headers={**crossing, "sec-fetch-mode": "navigate"}).status_code
        == 200
    )
    assert (
        client.get(
            f"/{TOKEN}/static/htmx.min.js", headers={**crossing, "sec-fetch-mode": "no-cors"}
        ).status_code
        == 403
    )
    body = fields(PEOPLE_PLAN, *SEX_EXACT)
    assert post(client, "results", body, **crossing).status_code == 403
    assert post(client, "results", body, **{"sec-fetch-site": "same-origin"}).status_code == 200


def test_only_its_own_files_are_served(client: TestClient) -> None:
    assert client.get(f"/{TOKEN}/static/htmx.min.js").status_code == 200
    assert "Zero-Clause BSD" in client.get(f"/{TOKEN}/static/htmx-LICENSE.txt").text
    for name in ("page.py", "..%2Fpage.py", "%2e%2e/page.py"):
        assert client.get(f"/{TOKEN}/static/{name}").status_code == 404
    assert client.get(f"/{TOKEN}/releases/1/release.json").status_code == 404
    assert post(client, "save/other.txt", fields(PEOPLE_PLAN)).status_code == 404


def test_no_page_asks_for_anything_elsewhere(client: TestClient) -> None:
    for text in (
        client.get(f"/{TOKEN}/").text,
        post(client, "results", fields(PEOPLE_PLAN, *SEX_EXACT)).text,
    ):
        assert (
            re.findall(r"""(?:src|href|action|hx-post|hx-get)=["']?(?:\w+:)?//[^"']*""", text) == []
        )
        assert "<script>" not in text
        assert "style=" not in text


# --- what it says ---------------------------------------------------------------------------------


def test_it_shows_what_a_dry_run_prints(client: TestClient, people: Path, here: Semidp) -> None:
    saved = post(client, "save/plan.toml", fields(PEOPLE_PLAN, *SEX_EXACT))
    assert saved.headers["content-disposition"] == 'attachment; filename="plan.toml"'
    Path("plan.toml").write_bytes(saved.content)
    rehearsed = here("release", people, "--plan", "plan.toml", "--dry-run", "--format", "json").json
    page = post(client, "results", fields(PEOPLE_PLAN, *SEX_EXACT)).text
    errors = rehearsed["tables"][0]["errors"]
    assert f'<td class="error">{errors["standard_error"]:.3g}</td>' in page
    assert f"±{errors['half_width']:.3g}" in page
    assert "μ = 1 (Gaussian DP)" in page
    assert "a = 2: up to 2 records change together" in page
    assert Plan.from_toml(saved.text).to_json() == rehearsed["plan"]


def test_the_saved_plan_is_the_one_that_is_shown_and_runs(
    client: TestClient, people: Path, here: Semidp
) -> None:
    shown = post(client, "results", fields(PEOPLE_PLAN, *SEX_EXACT)).text
    saved = post(client, "save/plan.toml", fields(PEOPLE_PLAN, *SEX_EXACT)).text
    assert (
        html.unescape(re.search(r'<pre id="plan-text">(.*?)</pre>', shown, re.DOTALL)[1]) == saved
    )
    Path("plan.toml").write_text(saved)
    assert here("release", people, "--plan", "plan.toml", "--out", "release").code == 0
    assert Release.load("release").plan == Plan.from_toml(saved)
    command = post(client, "save/release.sh", fields(PEOPLE_PLAN, *SEX_EXACT)).text
    assert command.endswith(f"semidp release {people} --plan plan.toml --out release\n")


def test_the_saved_notebook_runs(client: TestClient, people: Path) -> None:
    document = post(client, "save/plan.ipynb", fields(PEOPLE_PLAN, *SEX_EXACT)).json()
    names: dict[str, Any] = {}
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["release"].guarantee == names["prepared"].guarantee
    assert Path("release/report.html").exists()


def test_the_slider_moves_the_numbers(client: TestClient) -> None:
    def error(step: int) -> float:
        page = post(client, "results", fields(PEOPLE_PLAN, *SEX_EXACT, step=str(step))).text
        return float(re.search(r'<td class="error">([\d.]+)</td>', page)[1])

    one, two = LADDER.index(1), LADDER.index(2)
    assert error(two) == pytest.approx(error(one) / 2, rel=0.05)


def test_levels_that_are_not_public_are_asked_for_and_reading_them_is_said_to_disclose(
    client: TestClient,
) -> None:
    asked = post(client, "results", fields(PEOPLE_PLAN, *TABLE, ("total-0", "sex"))).text
    assert "the levels of region are not public" in asked
    assert 'name="levels-region"' in asked
    assert "This discloses them" in asked
    read = fields(PEOPLE_PLAN, *TABLE, ("total-0", "sex"), ("levels_from_data", "yes"))
    assert (
        "was read from the data and is published without protection"
        in post(client, "results", read).text
    )
    opened = client.get(f"/{TOKEN}/").text
    assert ">n<" not in opened  # no level of a column is on the page before it is asked for


def test_what_is_wrong_is_one_sentence(client: TestClient) -> None:
    for more, said in (
        ([("step", "999")], "which budget"),
        ([*SEX_EXACT, ("adjacency", "0")], "the adjacency must be"),
        ([*SEX_EXACT, ("report_delta", "2")], "must lie between 0 and 1"),
        ([("base", "[]")], "does not hold a plan"),
        ([("base", "{")], "does not hold a plan"),
    ):
        answer = post(client, "results", fields(PEOPLE_PLAN, *more))
        assert answer.status_code == 200
        assert said in answer.text
    assert "Tick the features" in post(client, "results", fields(PEOPLE_PLAN)).text


def test_scenarios_stand_side_by_side(client: TestClient) -> None:
    body = fields(PEOPLE_PLAN, *SEX_EXACT, ("variant", "half the budget"))
    kept = post(client, "keep", body).text
    assert "μ = 0.5 (Gaussian DP)" in kept
    assert "μ = 1 (Gaussian DP)" in kept
    scenario = re.findall(r'name="scenario" value="([^"]*)"', kept)
    assert len(scenario) == 1
    refused = post(client, "keep", fields(PEOPLE_PLAN, *TABLE, ("keep", "yes"))).text
    assert "are not public" in refused


def test_further_totals_have_a_price_and_are_not_read(client: TestClient) -> None:
    text = post(client, "costs", fields(PEOPLE_PLAN, *SEX_EXACT)).text
    assert "at most 3" in text
    assert not [number for number in (*SECRETS, *REGIONS) if number in text]
    added = post(client, "form", fields(PEOPLE_PLAN, *SEX_EXACT, ("add-total", "region"))).text
    assert 'name="total-1"' in added


# --- what it never says ---------------------------------------------------------------------------


def test_no_count_is_shown_that_the_plan_does_not_publish(client: TestClient) -> None:
    """The page, whatever is asked of it, holds no cell of the table and no total that is not
    exact.
    """
    sex = fields(PEOPLE_PLAN, *SEX_EXACT, ("variant", "half the budget"))
    both = fields(PEOPLE_PLAN, *SEX_EXACT, ("total-1", "region"))
    for where in ("results", "form", "keep", "costs"):
        text = post(client, where, sex).text
        assert not [number for number in (*SECRETS, *REGIONS, *SEXES) if number in text], where
        text = post(client, where, both).text
        assert not [number for number in SECRETS if number in text], where


def test_two_tables_with_the_same_totals_have_the_same_page(people: Path, tmp_path: Path) -> None:
    """What is shown is a function of the plan and of what it publishes."""
    other = tmp_path / "other"
    other.mkdir()
    swapped = (
        records()
        .replace("1013", "1010")
        .replace("2029", "2032")
        .replace("3041", "3044")
        .replace("4057", "4054")
    )
    (other / "people.csv").write_text(swapped)
    body = fields(PEOPLE_PLAN, *SEX_EXACT, ("total-1", "region"))
    seen = []
    for data in (people, other / "people.csv"):
        with client_of(PEOPLE_PLAN, data) as client:
            seen.append(
                [
                    post(client, where, body).text.replace(str(data), "")
                    for where in ("results", "costs", "keep")
                ]
            )
    assert seen[0] == seen[1]


# --- release --------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["", "2", "rho = 1", "mu", "mu = 1 2", "1e-1", "x"])
def test_a_release_wants_its_budget_typed(client: TestClient, typed: str) -> None:
    answer = post(
        client, "release", fields(PEOPLE_PLAN, *SEX_EXACT, ("typed", typed), ("folder", "out"))
    ).text
    assert 'role="alert"' in answer
    assert "mu = 1" in answer
    assert not Path("out").exists()


@pytest.mark.few(2)
@pytest.mark.parametrize("typed", ["1", "mu = 1", "mu 1.0", " 1/1 "])
def test_a_release_is_made_and_its_report_read(client: TestClient, typed: str) -> None:
    body = fields(PEOPLE_PLAN, *SEX_EXACT, ("typed", typed), ("folder", "out"))
    assert "Released into out" in post(client, "release", body).text
    assert Release.load("out").guarantee.tradeoff.mu == 1
    report = client.get(f"/{TOKEN}/releases/1/report.html")
    assert "<!doctype html>" in report.text
    assert "connect-src 'none'" in report.headers["content-security-policy"]
    assert client.get(f"/{TOKEN}/releases/1/table.csv").status_code == 200
    assert client.get(f"/{TOKEN}/releases/1/../people.csv").status_code in (403, 404)
    assert (
        "something else" in (again := post(client, "release", body).text) or 'role="alert"' in again
    )  # it is there already


def test_nothing_is_released_over_the_data(client: TestClient, people: Path) -> None:
    body = fields(PEOPLE_PLAN, *SEX_EXACT, ("typed", "1"), ("folder", str(people)))
    assert 'role="alert"' in post(client, "release", body).text
    assert people.read_text() == records()


@pytest.fixture
def charging(people: Path) -> Iterator[TestClient]:
    """The page of an explorer with a ledger."""
    Ledger.create("ledger.json", Budget.gdp(10))
    desk = _with_data(str(people), PEOPLE_PLAN, Options(ledger=Path("ledger.json")))
    application_of = application(desk, TOKEN, PORT)
    with TestClient(
        application_of, base_url=OWN, headers=HEADERS, raise_server_exceptions=False
    ) as found:
        yield found


RELEASED = fields(PEOPLE_PLAN, *SEX_EXACT, ("typed", "1"), ("folder", "out"))


def test_files_are_tried_before_the_ledger_is_charged(
    charging: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InputError("the disk is full")

    monkeypatch.setattr(block_run, "refuse_files", refuse)
    said = post(charging, "release", RELEASED).text
    assert "the disk is full" in said
    assert "charged" not in said
    assert not Ledger("ledger.json").account().charges


def test_the_page_says_whether_it_charged(
    charging: TestClient, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = post(charging, "release", RELEASED).text
    assert "Released into out" in said
    assert "The ledger was charged: charge 1." in said
    other = fields(PEOPLE_PLAN, *SEX_EXACT, ("typed", "1"), ("folder", "other"))
    assert "No ledger was charged." in post(client, "release", other).text
    for number, error in enumerate(
        (OSError(28, "No space left on device"), ValueError("1013")), start=2
    ):
        monkeypatch.setattr(Release, "write_files", lambda *_, error=error: raised(error))
        folder = f"third-{number}"
        third = fields(PEOPLE_PLAN, *SEX_EXACT, ("typed", "1"), ("folder", folder))
        said = post(charging, "release", third).text
        assert "the ledger was charged all the same" in said
        # an error of ours names no folder, which may be on the way out
        assert f"semidp resume {folder}" in said or "semidp ledger says how to finish it" in said
        assert "1013" not in said
        assert len(Ledger("ledger.json").account().charges) == number


def raised(error: Exception) -> None:
    raise error


# --- without data ---------------------------------------------------------------------------------


def test_it_works_from_a_schema_and_public_totals(tmp_path: Path) -> None:
    (tmp_path / "sexes.csv").write_text("sex,count\nf,30\nm,12\n")
    first = Plan(features=[Feature("region", "nsw")])
    desk = _without_data(first, [tmp_path / "sexes.csv"])
    with TestClient(application(desk, TOKEN, PORT), base_url=OWN, headers=HEADERS) as client:
        assert "without data" in client.get(f"/{TOKEN}/").text
        more = [("table-0", "sex"), ("table-0", "region"), ("total-0", "sex")]
        assert "up to 2 records" in post(client, "results", fields(desk.first, *more)).text
        refused = post(
            client, "release", fields(desk.first, *more, ("typed", "1"), ("folder", "out"))
        ).text
        assert "there are no data" in refused


def test_starting_options_that_contradict_each_other(here: Semidp, people: Path) -> None:
    for words, said in (
        (("--totals", "x.csv", people), "not both"),
        ((), "give DATA, or what is public without it"),
        ((people, "--plan", "p.toml", "--count", "people"), "leave the other options out"),
    ):
        done = here("explore", *words, "--no-browser")
        assert done.code == 2
        assert said in done.err


@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(
    here: Semidp, people: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    done = here("explore", people, "--no-browser")
    assert done.code == 2
    assert "install semidp[explore]" in done.err


def test_another_table_and_another_total_are_added_and_nothing_else_changes(
    client: TestClient,
) -> None:
    for what in ("table", "total"):
        text = post(client, "form", fields(PEOPLE_PLAN, *SEX_EXACT, ("add", what))).text
        assert f'name="{what}-1"' in text
        base = json.loads(html.unescape(re.search(r'name="base" value="([^"]*)"', text)[1]))
        assert base["invariants"] == [["sex"]]
        assert [table["features"] for table in base["table"]] == [["sex", "region"]]


def test_names_and_levels_of_strangers_are_text(tmp_path: Path) -> None:
    odd = "<img src=x onerror=alert(1)>"
    (tmp_path / "odd.csv").write_text(f'"{odd}",b\n"{odd}",1\nx,2\n')
    with client_of(Plan(), tmp_path / "odd.csv") as client:
        more = [("table-0", odd), ("table-0", "b"), ("total-0", odd), ("total-1", "b")]
        for text in (
            client.get(f"/{TOKEN}/").text,
            post(client, "results", fields(Plan(), *more)).text,
        ):
            assert "<img" not in text
            assert "&lt;img" in text


# --- controls -------------------------------------------------------------------------------------

COLUMNS = ("sex", "region", "age")
PLANS = [
    Plan(),
    Plan(
        [TableRequest(["region", "sex"], Budget.gdp("0.77"), mechanism="gaussian", name="own")],
        ["sex"],
    ),
    Plan(
        [TableRequest(["sex"], Budget.pure(1)), TableRequest(["age"], Budget.zcdp(1), name="b")],
        [["sex", "age"]],
    ),
    Plan(
        [
            TablesRequest(
                [TableRequest(["sex", "age"]), TableRequest(["region"])],
                Budget.approximate(1, "1e-6"),
            )
        ],
        invariants=["sex"],
    ),
    Plan(
        [GroupRequest("mean", Outcome("age", 0, 99, 99), [["sex"]], Budget.gdp(1))],
        invariants=["sex"],
        adjacency="exchange",
        report_delta="1e-6",
    ),
    Plan(
        [QuantileRequest(Outcome("age", 0, 99, 99), [["sex"]], budget=Budget.gdp(1))],
        invariants=["sex"],
    ),
    Plan(
        [DistributionRequest(Outcome("age", 0, 99, 99), [["sex"]], budget=Budget.gdp(1))],
        invariants=["sex"],
    ),
]


@pytest.mark.parametrize("plan", PLANS)
def test_controls_that_nobody_touched_leave_the_plan_as_it_is(plan: Plan) -> None:
    assert Controls.of_plan(plan, COLUMNS).plan(plan, COLUMNS) is plan


def test_a_budget_between_two_stops_stays_until_the_slider_moves() -> None:
    plan = PLANS[1]
    controls = Controls.of_plan(plan, COLUMNS)
    more = evolve(controls, totals=(*controls.totals, ("region",))).plan(plan, COLUMNS)
    assert more.requests[0].budget == Budget.gdp("0.77")
    assert (more.tables[0].name, more.tables[0].mechanism) == ("own", "gaussian")
    moved = evolve(controls, step=LADDER.index(2)).plan(plan, COLUMNS)
    assert moved.requests[0].budget == Budget.gdp(2)


def test_variants_are_half_the_budget_and_the_other_promise() -> None:
    for plan in PLANS[1:]:
        half, other = variants(plan).values()
        assert str(other.adjacency) != str(plan.adjacency)
        for before, after in zip(plan.requests, half.requests, strict=True):
            name = next(iter(before.budget.keys()))
            assert getattr(after.budget, name) == getattr(before.budget, name) / 2


@pytest.mark.long
def test_the_desk_keeps_scopes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for one plan is never used for another that publishes something else, also where
    little is kept.
    """
    monkeypatch.setattr("semidp.present.forecasts.KEPT", 2)
    features = [Feature("sex", "fm"), Feature("region", "ns")]
    table = Table(Schema(features), [[3, 5], [7, 11]])
    desk = PlanForecasts(("sex", "region"), lambda plan: prepare(plan, table).scope, Plan())
    wanted = [TableRequest(["sex", "region"], Budget.gdp(1))]
    settings = [([], "worst-case"), (["sex"], "worst-case"), (["sex"], "exchange"), (["region"], 5)]
    for _ in range(2):
        for invariants, adjacency in settings:
            plan = Plan(wanted, invariants, features, adjacency=adjacency)
            assert desk.forecast(plan).document == forecast(prepare(plan, table)).document


def test_the_desk_reads_totals_once_whatever_the_budgets() -> None:
    surveyed = []

    def scope_of(plan: Plan) -> Scope:
        surveyed.append(plan)
        return prepare(plan, people).scope

    people = {"sex": [*"fm"] * 20, "region": [*"nnss"] * 10, "age": [20, 30, 40, 50] * 10}
    desk = PlanForecasts(COLUMNS, scope_of, Plan())
    for number, plan in enumerate((PLANS[3], PLANS[4], PLANS[5])):
        declared = evolve(plan, levels_from_data=True)
        for each in (declared, variants(declared)["half the budget"]):
            assert desk.forecast(each).forecasts
        assert len(surveyed) == number + 1


def test_the_page_names_everything_that_is_no_table() -> None:
    page = Page(PlanForecasts(COLUMNS, lambda plan: prepare(plan, people).scope, Plan()))
    people = {"sex": [*"fm"] * 20, "region": [*"nnss"] * 10, "age": [20, 30, 40, 50] * 10}
    for plan in PLANS[4:]:
        (request,) = plan.requests
        (forecast,) = page.desk.forecast(plan).forecasts
        shown = page.render_page(plan)
        assert f'class="name">{request.name}</th><td class="name">{forecast.line()}</td>' in shown
        assert page._form(plan)["others"] == []
        assert [card.value for card in page._form(plan)["controls"].cards] == ["age"]


MEAN = [
    ("mean-0", "age"),
    ("mean-0-group", "sex"),
    ("mean-0-bounds", "0, 99"),
    ("mean-0-grid", "99"),
]


def like_mean(name: str) -> list[tuple[str, str]]:
    """The same controls on a card of another statistic."""
    return [(called.replace("mean", name), value) for called, value in MEAN]


def test_statistics_are_chosen_on_cards_and_share_the_budget() -> None:
    """A card of each kind: the plan is the one that the command line makes of the same options."""
    more = [
        *(("table-0", "sex"), ("table-0", "region"), *MEAN),
        *(
            ("proportion-0", "ill"),
            ("proportion-0-group", "region"),
            ("proportion-0-sampling", "yes"),
        ),
        *(
            ("median-0", "age"),
            ("median-0-group", "sex"),
            ("median-0-bounds", "0,99"),
            ("median-0-quantile_level", "0.9"),
        ),
        *(("quantile-1", "pay"), ("quantile-1-values", "0.1, 0.9"), ("quantile-1-group", "sex")),
        ("quantile-1-bounds", "0,1e6"),
        *(
            ("regress-0", "pay"),
            ("regress-0-on", "sex"),
            ("regress-0-on", "region"),
            ("regress-0-bounds", "0,1e6"),
        ),
        ("sum-0", ""),  # a card that names no column asks for nothing
    ]
    columns = ("sex", "region", "age", "pay", "ill")
    controls = Controls.of_form([*BASE, *more], columns)
    plan = controls.plan(Plan(), columns)
    assert [request.name for request in plan.requests] == [
        *("table", "mean-age", "proportion-ill", "regression-pay", "median-age", "quantiles-pay"),
    ]
    assert {request.budget for request in plan.requests} == {Budget.gdp(1).share(Fraction(1, 6))}
    assert plan.invariants == (Margin("sex"), Margin("region"), Margin("sex", "region"))
    chosen = Options(
        table=["sex,region"],
        group=["sex"],
        mean=["age"],
        bounds=["age=0,99"],
        grid=["age=99"],
    ).given.choices()
    asked = Plan(build_requests(Chosen(chosen))).requests
    assert [item.with_budget(None) for item in plan.requests][:2] == list(asked)
    # the parts of mu are rounded down: what is typed is the amount that was chosen
    check_typed(plan, "mu = 1")
    with pytest.raises(InputError, match="would spend mu = 1, and"):
        check_typed(plan, "0.99")
    # What the cards made is shown by the same cards again, and no group appears among the totals.
    again = Controls.of_plan(plan, columns)
    assert {
        card.to_choices()[card.asking] for card in again.cards if card.asking != "quantile"
    } == {
        *((("sex", "region"),), ("age",), ("ill",), ("pay",)),
    }
    assert again.totals == ()
    assert Plan.from_toml(plan.to_toml()) == plan


def test_what_a_card_cannot_show_is_left_as_it_is() -> None:
    outcome = Outcome("age", 0, 99, 99)
    several = GroupRequest("mean", outcome, [["sex"], ["region"]], Budget.gdp(1))
    crossed = RegressionRequest(
        outcome, ["sex", "region"], Budget.gdp(1), interactions=[["sex", "region"]]
    )
    for request in (several, crossed):
        plan = Plan(
            [request, TableRequest(["sex", "region"], Budget.gdp(1))],
            ["sex", "region", ["sex", "region"]],
        )
        laid = laid_out(plan, COLUMNS)
        assert laid.others == (request,)
        assert [card.asking for card in laid.cards] == ["table"]
        moved = evolve(Controls.of_plan(plan, COLUMNS), step=LADDER.index(2)).plan(plan, COLUMNS)
        assert request in moved.requests
        assert moved.tables[0].features == ("sex", "region")


def test_two_cards_of_one_column_get_names_of_their_own() -> None:
    more = [*MEAN, ("mean-1", "age"), ("mean-1-group", "region"), ("mean-1-bounds", "0,99")]
    plan = Controls.of_form([*BASE, *more], COLUMNS).plan(Plan(), COLUMNS)
    assert [request.name for request in plan.requests] == ["mean-age", "mean-age-by-region"]
    moved = evolve(Controls.of_plan(plan, COLUMNS), step=LADDER.index(2)).plan(plan, COLUMNS)
    assert [request.name for request in moved.requests] == ["mean-age", "mean-age-by-region"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([("mean-0", "age")], "needs declared bounds"),
        ([("mean-0", "age"), ("mean-0-group", "sex")], "needs declared bounds"),
        (
            [("regress-0", "age"), ("regress-0-bounds", "0,1")],
            "say on which features to regress age",
        ),
        ([*MEAN[:3], ("mean-0-level", "2")], "level"),
        ([*like_mean("median"), ("median-0-sampling", "yes")], "has no effect on this median"),
        (like_mean("quantile"), "between 0 and 1"),
    ],
)
def test_a_card_that_lacks_something_says_what(more: list[tuple[str, str]], said: str) -> None:
    page = Page(PlanForecasts(COLUMNS, lambda plan: prepare(plan, people).scope, Plan()))
    people = {"sex": [*"fm"] * 20, "region": [*"nnss"] * 10, "age": [20, 30, 40, 50] * 10}
    shown = page.results([("base", "{}"), *BASE, *more])
    assert said in shown
    assert 'role="alert"' in shown
    assert "--" not in shown.partition("</p>")[0]  # a page has no options


def test_cards_are_added_and_removed() -> None:
    page = Page(
        PlanForecasts(
            COLUMNS, lambda plan: prepare(plan, people).scope, Plan(), source="people.csv"
        )
    )
    people = {"sex": [*"fm"] * 20, "region": [*"nnss"] * 10, "age": [20, 30, 40, 50] * 10}
    form = page.form([("base", "{}"), *BASE, ("add", "which"), ("which", "median")])
    assert 'name="median-0"' in form
    assert 'name="median-0-quantile_level"' in form
    form = page.form([("base", "{}"), *BASE, ("add", "which"), ("which", "distribution")])
    assert 'name="distribution-0-line"' in form
    asked = [*like_mean("distribution"), ("distribution-0-line", "35")]
    assert "a whole curve ±" in page.form([("base", "{}"), *BASE, *asked])
    both = [
        ("base", "{}"),
        *BASE,
        *MEAN,
        ("mean-1", "age"),
        ("mean-1-group", "region"),
        ("mean-1-bounds", "0,99"),
    ]
    left = page.form([*both, ("without", "mean-0")])
    assert 'name="mean-0"' in left
    assert 'name="mean-1"' not in left
    assert "mean-age" in left


# --- forms that no browser sends ------------------------------------------------------------------

LONG = "9" * 5000


@pytest.mark.parametrize(
    ("where", "more", "changed", "said"),
    [
        (
            "release",
            [("folder", "a\x00b"), ("typed", "mu = 1")],
            {},
            "a character that no name and no number has",
        ),
        (
            "results",
            [(f"x{number}", "") for number in range(21_000)],
            {},
            "more than 20,000 fields",
        ),
        ("results", [], {"step": LONG}, "more than 4,000 characters"),
        ("results", [], {"step": "0" * 4999 + "1"}, "more than 4,000 characters"),
        ("results", [("number", LONG)], {"adjacency": "number"}, "more than 4,000 characters"),
        ("results", [], {"report_delta": LONG}, "more than 4,000 characters"),
        ("release", [("typed", LONG), ("folder", "out")], {}, "more than 4,000 characters"),
        ("keep", [("variant", "\x00")], {}, "a character that no name and no number has"),
    ],
)
def test_a_hostile_form_is_refused_in_a_sentence(
    client: TestClient, where: str, more: list[tuple[str, str]], changed: dict[str, str], said: str
) -> None:
    answer = post(client, where, fields(PEOPLE_PLAN, *SEX_EXACT, *more, **changed))
    assert 400 <= answer.status_code < 500
    assert said in answer.text
    assert "internal error" not in answer.text


@pytest.mark.parametrize(
    "base", [f'{{"adjacency": {LONG}}}', '{"report_delta": NaN}', f'{{"count": "{LONG}"}}', "[]"]
)
def test_a_hostile_plan_in_the_form_is_a_sentence(client: TestClient, base: str) -> None:
    body = urlencode([("base", base), *BASE, *SEX_EXACT])
    for where in ("results", "form", "keep", "costs", "release", "save/plan.toml"):
        answer = post(client, where, body)
        assert answer.status_code < 500, where
        assert "internal error" not in answer.text


@pytest.mark.parametrize("number", ["0", "1", "-1", LONG, "١", "1.0"])
def test_a_release_that_was_not_made_is_not_found(client: TestClient, number: str) -> None:
    answer = client.get(f"/{TOKEN}/releases/{number}/report.html")
    assert (answer.status_code, answer.text) == (404, "There is no such file.")


def test_missing_values_are_chosen_on_the_page(tmp_path: Path) -> None:
    lines = ["ward,sort,pay"]
    for number in range(90):
        sort = "xy"[number % 2] if number % 5 else ""
        lines.append(f"{'ab'[number % 2]},{sort},{number % 9 if number % 7 else ''}")
    data = tmp_path / "wards.csv"
    data.write_text("\n".join(lines) + "\n")
    mean = [("mean-0", "pay"), ("mean-0-group", "ward"), ("mean-0-bounds", "0, 9")]
    table = [("table-0", "ward"), ("table-0", "sort"), ("total-0", "ward"), ("total-1", "sort")]
    with client_of(Plan(), data) as client:
        page = post(client, "results", fields(Plan(), *mean)).text
        assert '<option value="refuse">' in page
        for way, reading in (("private", "answered as 1"), ("exact", "answered")):
            chosen = fields(Plan(), *mean, ("missing-pay", way))
            saved = tomllib.loads(post(client, "save/plan.toml", chosen).text)
            assert saved["read_as"]["pay answered"] == reading
            added = post(
                client, "form", fields(Plan(), *mean, ("missing-pay", way), ("add", "sum"))
            )
            assert f'<option value="{way}" selected>' in added.text
            assert 'name="mean-0"' in added.text
        # an exact total with missing values asks for a level of its own
        assert 'name="null-sort"' in post(client, "results", fields(Plan(), *table)).text
        levels = [("levels-sort", "x, y"), ("null-sort", "unknown")]
        shown = post(client, "results", fields(Plan(), *table, *levels)).text
        assert "ward by sort" in shown
        assert "null_level = &#34;unknown&#34;" in shown
