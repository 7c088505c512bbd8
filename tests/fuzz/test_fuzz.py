"""Commands with hostile words and files, in this process: a sentence and a code, never a traceback
or exit code 70.

``make test`` runs about a minute of it, always the same; ``make fuzz`` runs 10^5 inputs, always
others. What was found once is kept as an example.
"""

import contextlib
import copy
import hashlib
import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from semidp.cli import run
from semidp.present.explore.explorer_page import ONE_LINERS

pytestmark = [pytest.mark.pictures, pytest.mark.no_schema]

TIMES = float(os.environ.get("SEMIDP_FUZZ", "0.15"))
"""How many times the inputs of ``make test`` are run."""
SECONDS = 60  # for one input, far beyond what any takes
SENTENCES = {0, 1, 2, 3}
ROOT = Path(__file__).parent

NUMBERS = [
    *(
        "0",
        "1",
        "-1",
        "2",
        "0.5",
        "1e-9",
        "1/3",
        "1e400",
        "-1e400",
        "1e-400",
        "1e999999999",
        "9" * 400,
        "9" * 5000,
    ),
    *(
        "0." + "0" * 400 + "1",
        "²",
        "١",
        "½",
        "1_000",
        "0x10",
        "nan",
        "inf",
        "-inf",
        "",
        " ",
        "1/0",
        "1/2/3",
        "1e",
        "+",
    ),
    *(
        "true",
        "None",
        "\x00",
        "\ud800",
        "\x1b[2J",
        "1,2",
        "a=b",
        "=",
        ",",
        "--",
        "-0",
        "0/1",
        "1e15",
        "1e16",
        "4096",
    ),
    *(
        "5" * 400 + "/" + "7" * 400,
        "1e300",
        "1e308",
        "1e309",
        "2**10",
        "１２",
        "worst-case",
        "definition",
        "𝟙",
        "'",
        '"',
    ),
]
numbers = (
    st.sampled_from(NUMBERS) | st.text(max_size=8) | st.integers().map(str) | st.floats().map(str)
)
names = st.sampled_from(
    ["sex", "region", "age", "paid", "nobody", "", ",", "sex,region", "sex,sex", "\x00", "*", "a/b"]
)
names = names | st.text(max_size=5)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [10**30, -(10**400), 1e308, 1e400, -1e400, float("nan"), 2**63, -(2**63), 2**31]
    )
    | st.floats()
    | numbers
    | names,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | names, inner, max_size=4)
    ),
    max_leaves=8,
)


def fuzz(examples: int) -> Callable[[Any], Any]:
    """Run a test with so many inputs: the same in every ``make test``, others in every
    ``make fuzz``.
    """
    return settings(
        max_examples=int(examples * TIMES),
        deadline=None,
        derandomize="SEMIDP_FUZZ" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with data, a ledger, and releases of every kind, which is the current one."""
    before = Path.cwd()
    try:
        yield fill_place(tmp_path_factory.mktemp("fuzz"))
    finally:
        os.chdir(before)


def fill_place(folder: Path) -> Path:
    people = [
        f"{s},{r},{a},{a % 2},{r}{a % 3}"
        for s, r, a in zip("fmmfmf" * 6, "nsnssn" * 6, range(36), strict=True)
    ]
    (folder / "people.csv").write_text("\n".join(["sex,region,age,paid,town", *people]) + "\n")
    (folder / "plan.toml").write_text(PLAN)
    os.chdir(folder)
    assert run(["ledger", "book.json", "--rho", "9"]) == 0
    for name, words in RELEASES.items():
        assert run(["release", "people.csv", *words, "--out", name, "--quiet"]) == 0
    return folder


TABLE = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region")
RELEASES = {
    "table": (*TABLE, "--rho", "0.5", "--ledger", "book.json"),
    "groups": ("--group", "sex", "--mean", "age", "--bounds", "age=0,100", "--epsilon", "1"),
    "regression": ("--logistic", "paid", "--on", "sex", "--mu", "1"),
    "linear": (
        "--regress",
        "age",
        "--on",
        "sex,region",
        "--bounds",
        "age=0,100",
        "--mu",
        "1",
        "--set",
        "sampling=true",
    ),
    "product": (*TABLE, "--table", "region,paid", "--levels", "paid=0,1", "--mu", "1"),
    "exchange": (*TABLE, "--adjacency", "exchange", "--epsilon", "1"),
    "median": (
        "--group",
        "sex",
        "--median",
        "age",
        "--bounds",
        "age=0,100",
        "--set",
        "grid=age=100",
        "--epsilon",
        "1",
    ),
    "parts": (
        *(
            "--nest",
            "region,town",
            "--table",
            "town,sex",
            "--invariant",
            "region",
            "--levels",
            "sex=f,m",
        ),
        *("--levels-from-data", "--mu", "1", "--partition", "region"),
    ),
}
PLAN = """
invariants = [["sex"], ["region"]]
[[table]]
features = ["sex", "region"]
rho = "0.5"
[[group]]
column = "age"
by = [["sex"]]
bounds = [0, 100]
grid = 100
rho = 0.25
[[regression]]
column = "paid"
factors = ["sex"]
model = "logistic"
rho = 0.25
[[feature]]
name = "sex"
levels = ["f", "m"]
"""


@contextlib.contextmanager
def in_time(what: object) -> Iterator[None]:
    """Let a block end within a minute."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"no end within {SECONDS} seconds: {what}")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(words: list[str]) -> int:
    """Run a command; its code must be one that says something to a user, and it must end."""
    with in_time(words):
        code = run([*words, "--quiet"])
    assert code in SENTENCES, f"exit code {code}: {words}"
    return code


def options(*pairs: tuple[str, st.SearchStrategy[str]]) -> st.SearchStrategy[list[str]]:
    """Draw some of the options, each with a hostile value."""
    one = st.one_of(*(st.tuples(st.just(option), value) for option, value in pairs))
    return st.lists(one, max_size=4).map(lambda drawn: list(itertools.chain.from_iterable(drawn)))


BUDGET = [(option, numbers) for option in ("--epsilon", "--rho", "--mu", "--delta")]
assigned = st.builds("{}={}".format, names, st.lists(numbers | names, max_size=3).map(",".join))
# What is right but for one number, so that it passes the checks of words before it.
LARGE = ["1e300", "1e308", "1e309", "1e400", "9" * 400, "1e-400", "-1e400", "1/0", "nan", "inf"]
edges = st.builds("age=0,10,{}".format, st.sampled_from([*LARGE, "", ","]) | numbers)
bins = assigned | edges


@given(words=options(*BUDGET, ("--a", numbers), ("--invariant", names), ("--levels", assigned)))
@example(words=["--rho", "1", "--a", "²"])
@example(words=["--epsilon", "9" * 5000, "--a", "2"])
@example(words=["--mu", "1", "--a", "9" * 5000])
@fuzz(400)
def test_guarantee(place: Path, words: list[str]) -> None:
    check(["guarantee", *words])


READING = [
    *(
        ("--table", names),
        ("--invariant", names),
        ("--levels", assigned),
        ("--bins", bins),
        ("--a", numbers),
    ),
    *(
        ("--null-level", assigned),
        ("--count", names),
        ("--id", names),
        ("--adjacency", numbers),
        ("--where", names),
    ),
    *(
        ("--group", names),
        ("--mean", names),
        ("--sum", names),
        ("--proportion", names),
        ("--bounds", assigned),
    ),
    *(
        ("--grid", assigned),
        ("--regress", names),
        ("--logistic", names),
        ("--on", names),
        ("--seed", numbers),
    ),
    *(
        ("--mechanism", numbers),
        ("--fit", numbers),
        ("--ledger", names),
        ("--schema", names),
        ("--format", numbers),
    ),
]


@given(
    words=options(*BUDGET, *READING),
    more=st.sampled_from([TABLE, (*TABLE, "--rho", "1"), RELEASES["groups"]]),
)
@example(
    words=["--bounds", "age=0," + "9" * 400, "--mean", "age", "--group", "sex", "--rho", "1"],
    more=(),
)
@example(
    words=[
        "--bounds",
        "age=-" + "9" * 400 + ",1e300",
        "--mean",
        "age",
        "--group",
        "sex",
        "--mu",
        "1",
    ],
    more=(),
)
@example(words=["--set", "grid=age=" + "9" * 5000], more=RELEASES["groups"])
@example(words=["--a", "9" * 400], more=(*TABLE, "--rho", "1"))
@example(words=["--bins", "age=0,10,1e400", "--table", "sex,age", "--mu", "1"], more=TABLE)
@example(
    words=["--bins", "age=0,10,10.00000000000000000001", "--table", "sex,age", "--mu", "1"],
    more=TABLE,
)
@fuzz(60)
def test_release_without_drawing(place: Path, words: list[str], more: tuple[str, ...]) -> None:
    check(["release", "people.csv", *more, *words, "--dry-run"])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to everything inside a JSON value."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


class Damage:
    """What happens to a JSON document: some values replaced or removed; then perhaps to its
    text.
    """

    def __init__(self, draw: st.DataObject, document: Any) -> None:
        self.document = copy.deepcopy(document)
        for _ in range(draw.draw(st.integers(1, 2))):
            where = list(places(self.document))
            if not where:
                return
            *parents, last = draw.draw(st.sampled_from(where))
            inner = self.document
            for key in parents:
                inner = inner[key]
            if draw.draw(st.integers(0, 4)) == 0:
                del inner[last]
            else:
                inner[last] = draw.draw(json_values)

    def text(self, draw: st.DataObject) -> bytes:
        """Return the document as bytes, one time in ten with a part cut out, doubled or nested
        deeply.
        """
        text = json.dumps(self.document).encode(errors="surrogatepass")
        kind = draw.draw(st.integers(0, 29))
        start, length = draw.draw(st.integers(0, len(text))), draw.draw(st.integers(0, 200))
        if kind == 0:
            return text[:start] + text[start + length :]
        if kind == 1:
            return text[:start] + b"[" * 100_000
        if kind == 2:
            return text[:start] + bytes(range(256)) + text[start:]
        return text


HOSTILE = [
    float("nan"),
    float("inf"),
    None,
    -1,
    0,
    "1/0",
    "",
    [],
    {},
    "unknown",
    10**400,
    "1e400",
    True,
    2**63,
]
TAMPERED = [
    ("product", ("products", 0, "saved_by_joint_sensitivity"), float("nan")),
    ("product", ("products", 0, "law"), "unknown"),
    ("product", ("products", 0, "residuals", 1, "sigma2"), "1/0"),
    ("product", ("products", 0, "precision"), "-1"),
    ("product", ("plan", "mu"), None),
    ("parts", ("partitioned", 0, "law"), 0.5),
    ("parts", ("plan", "table", 0, "mu"), None),
    ("parts", ("partitioned", 0, "residuals", 3, "sigma2"), "1e400"),
    ("table", ("tables", 0, "noise", "scale"), 10**400),
    ("table", ("guarantee", "rho"), None),
    ("linear", ("regressions", 0, "query", "combination", 0, 0), "1e400"),
]


def replaced(place: Path, name: str, path: tuple[Any, ...], value: Any) -> int:
    """Put one value into the release.json of a copy of a release, and show it."""
    folder = place / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / name, folder)
    document = json.loads((folder / "release.json").read_text())
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    assert path[-1] in inner or path[-1] in range(len(inner))
    inner[path[-1]] = value
    (folder / "release.json").write_text(json.dumps(document))
    return check(["show", "damaged"])


@pytest.mark.parametrize(("name", "path", "value"), TAMPERED)
def test_a_release_json_with_one_value_replaced(
    place: Path, name: str, path: tuple[Any, ...], value: Any
) -> None:
    # 1 where the rest can be read, and it says what disagrees
    assert replaced(place, name, path, value) in (1, 2)


@given(data=st.data(), name=st.sampled_from(sorted(RELEASES)))
@fuzz(120)
def test_any_value_of_a_release_json_replaced_by_a_hostile_one(
    place: Path, data: st.DataObject, name: str
) -> None:
    document = json.loads((place / name / "release.json").read_text())
    where = [path for path in places(document) if path[0] not in ("files", "versions")]
    replaced(place, name, data.draw(st.sampled_from(where)), data.draw(st.sampled_from(HOSTILE)))


@given(data=st.data(), name=st.sampled_from(sorted(RELEASES)))
@fuzz(200)
def test_a_damaged_release_json(place: Path, data: st.DataObject, name: str) -> None:
    folder = place / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / name, folder)
    damage = Damage(data, json.loads((folder / "release.json").read_text()))
    (folder / "release.json").write_bytes(damage.text(data))
    check(["show", "damaged"])


@given(data=st.data(), name=st.sampled_from(sorted(RELEASES)))
@fuzz(60)
def test_damaged_tables(place: Path, data: st.DataObject, name: str) -> None:
    """Cells of the CSV files are replaced, and release.json has their hashes."""
    folder = place / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / name, folder)
    document = json.loads((folder / "release.json").read_text())
    written = [name for name in document["files"] if not name.endswith(".parquet")]
    file = data.draw(st.sampled_from(sorted(written)))
    rows = [line.split(",") for line in (folder / file).read_text().splitlines()]
    row = data.draw(st.integers(0, len(rows) - 1))
    if data.draw(st.integers(0, 3)) == 0:
        del rows[row]
    else:
        rows[row][data.draw(st.integers(0, len(rows[row]) - 1))] = data.draw(numbers)
    content = "\n".join(map(",".join, rows)).encode(errors="surrogatepass")
    (folder / file).write_bytes(content)
    document["files"][file] = hashlib.sha256(content).hexdigest()
    (folder / "release.json").write_text(json.dumps(document))
    check(["show", "damaged"])


@given(data=st.data())
@fuzz(250)
def test_a_damaged_ledger(place: Path, data: st.DataObject) -> None:
    from semidp.promise.accounting import ledger

    damage = Damage(data, json.loads((place / "book.json").read_text()))
    if data.draw(st.booleans()):  # by somebody who mends the hashes
        try:
            head = ledger._genesis(damage.document)
            for entry in damage.document["charges"]:
                head = entry["head"] = ledger._head(head, entry)
        except (KeyError, TypeError, AttributeError):
            pass
    (place / "damaged.json").write_bytes(damage.text(data))
    check(["ledger", "damaged.json"])
    check(["ledger", "damaged.json", "--check", "table"])


@given(data=st.data())
@fuzz(120)
def test_a_plan_of_wrong_types(place: Path, data: st.DataObject) -> None:
    import tomllib

    damage = Damage(data, tomllib.loads(PLAN))
    (place / "damaged.json").write_bytes(damage.text(data))
    check(["release", "people.csv", "--plan", "damaged.json", "--dry-run"])


@given(
    start=st.integers(0, len(PLAN)),
    length=st.integers(0, 30),
    put=numbers | names,
    word=st.sampled_from(["", "[" * 5000]),
)
@example(start=0, length=0, put="a = ", word="[" * 100_000)
@example(start=0, length=0, put="adjacency = " + "9" * 5000 + "\n", word="")
@fuzz(80)
def test_a_damaged_plan_or_schema_in_toml(
    place: Path, start: int, length: int, put: str, word: str
) -> None:
    text = PLAN[:start] + put + word + PLAN[start + length :]
    (place / "damaged.toml").write_bytes(text.encode(errors="surrogatepass"))
    check(["release", "people.csv", "--plan", "damaged.toml", "--dry-run"])
    schema = text.partition("[[feature]]")
    (place / "damaged.toml").write_bytes(
        (put + word + "".join(schema[1:])).encode(errors="surrogatepass")
    )
    check(["guarantee", "--rho", "1", "--schema", "damaged.toml", "--invariant", "sex"])


@given(
    words=st.lists(
        st.sampled_from(["--check", "--rho", "--format", "json", "-h", "book.json", "table"])
        | numbers
    )
)
@fuzz(60)
def test_words_in_any_order(place: Path, words: list[str]) -> None:
    for command in ("ledger", "show", "guarantee"):
        # Nothing may be opened where it stays: a new ledger would make the next input another one.
        check(
            [command, *(word for word in words if word not in ("--rho",) or command == "guarantee")]
        )


TOKEN, PORT = "token", 8765
FIELDS = [*ONE_LINERS, "base", "add-total", "scenario", "scenario-name", "nest"]
FIELDS += ["levels-sex", "bins-age", "table-0", "total-0", "table-999"]
ADDRESSES = ["results", "form", "keep", "costs", "release", "save/plan.toml", "save/plan.ipynb"]


@pytest.fixture(scope="module")
def page(place: Path) -> Iterator[TestClient]:
    """The page of semidp explore, which refuses every release: no budget is ever typed right."""
    from semidp import Plan
    from semidp.cli._options import Options
    from semidp.cli.analyze import _with_data
    from semidp.present.explore.explorer_page import application

    desk = _with_data("people.csv", Plan(), Options())
    own = f"http://127.0.0.1:{PORT}"
    with TestClient(
        application(desk, TOKEN, PORT), base_url=own, headers={"origin": own}
    ) as client:
        yield client


hostile_fields = st.lists(
    st.tuples(st.sampled_from(FIELDS), numbers | names | json_values.map(str)), max_size=4
)


@given(
    where=st.sampled_from(ADDRESSES),
    changed=hostile_fields,
    many=st.sampled_from([0, 0, 0, 0, 21_000]),
)
@example(where="release", changed=[("folder", "a\x00b"), ("typed", "mu = 1")], many=0)
@example(where="results", changed=[], many=21_000)
@example(where="results", changed=[("step", "0" * 4999 + "1")], many=0)
@example(where="form", changed=[("base", '{"adjacency": ' + "9" * 5000 + "}")], many=0)
@fuzz(120)
def test_a_hostile_form_of_the_page(
    page: TestClient, where: str, changed: list[tuple[str, str]], many: int
) -> None:
    sound = {
        "base": "{}",
        "kind": "mu",
        "step": "20",
        "adjacency": "worst-case",
        "report_delta": "1e-9",
    }
    fields = [*{**sound, "table-0": "sex"}.items(), *changed, *[("x", "")] * many]
    body = urlencode([(name, value.encode(errors="replace")) for name, value in fields])
    answer = page.post(
        f"/{TOKEN}/{where}",
        content=body,
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code < 500, answer.text
