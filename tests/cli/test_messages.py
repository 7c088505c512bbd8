"""Mistakes of a first day: each is one sentence that says what to do next, and none holds a value
of the data.
"""

import codecs
import gzip
from pathlib import Path

import pytest

import semidp as package
from semidp.errors import InputError, SemidpError
from tests.cli.conftest import Semidp, one_sentence

PEOPLE = "sex,region,age\n" + "".join(
    f"{sex},{region},{age}\n"
    for sex, region, age in zip("fmmf", "nsns", (7, 10, 9, 61), strict=True)
)
TABLE = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region")
SECRET = "7654321"


def people(folder: Path, text: str = PEOPLE) -> str:
    (folder / "people.csv").write_text(text)
    return "people.csv"


def said_of(here: Semidp, *words: str) -> str:
    """Run a command that fails, and return its sentence, in which there is nothing of the data."""
    sentence = one_sentence(here(*words, "--quiet"))
    assert SECRET not in sentence
    return sentence


@pytest.mark.few(1)
@pytest.mark.parametrize("value", [f'"1,{SECRET}"', f"{SECRET}%", f"{SECRET} kr", "n/a"])
@pytest.mark.parametrize(
    "words",
    [
        ("--group", "sex", "--mean", "pay", "--bounds", "pay=0,100"),
        ("--group", "sex", "--median", "pay", "--bounds", "pay=0,100"),
        ("--regress", "pay", "--on", "sex", "--bounds", "pay=0,100"),
        ("--table", "sex,pay", "--bins", "pay=0,10", "--invariant", "sex"),
    ],
)
def test_what_is_no_number_is_told_how_to_write_one(
    here: Semidp, tmp_path: Path, value: str, words: tuple[str, ...]
) -> None:
    data = people(tmp_path, f"sex,pay\nf,1\nm,{value}\n")
    sentence = said_of(here, "release", data, *words, "--mu", "1", "--out", "out")
    assert (
        "write numbers as 1200, 12.5 or 1e3, without separators, percent signs and units"
        in sentence
    )
    assert "leave" not in sentence  # that would change exact counts
    assert not (tmp_path / "out").exists()


def test_counts_that_are_no_numbers_are_told_how_to_write_them(
    here: Semidp, tmp_path: Path
) -> None:
    data = people(tmp_path, f'sex,people\nf,3\nm,"1,{SECRET}"\n')
    words = (
        "--table",
        "sex",
        "--levels",
        "sex=f,m",
        "--count",
        "people",
        "--mu",
        "1",
        "--out",
        "out",
    )
    assert "write them as 1200, without separators" in said_of(here, "release", data, *words)


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["sex = 'F'", "age > 1000", "sex = 'f' AND sex = 'm'"])
@pytest.mark.parametrize("declared", [(), ("--levels", "sex=f,m", "--levels", "region=n,s")])
def test_a_where_that_keeps_nothing_blames_no_levels(
    here: Semidp, tmp_path: Path, where: str, declared: tuple[str, ...]
) -> None:
    words = ("release", people(tmp_path), *TABLE, *declared, "--where", where, "--mu", "1")
    sentence = said_of(here, *words, "--out", "out")
    assert "the WHERE keeps no record: check its condition" in sentence
    assert "levels" not in sentence
    if declared:  # whoever says so may release nothing
        assert here(*words, "--set", "allow_empty=true", "--out", "out").code == 0


def test_a_where_compares_numbers_and_says_what_else_it_needs(here: Semidp, tmp_path: Path) -> None:
    words = ("release", people(tmp_path), *TABLE, "--mu", "1", "--dry-run", "--format", "json")
    # the order of texts would keep two: 10 and 9 beside 7 and 61
    assert here(*words, "--where", "age < 60").json["n"] == 3
    tens = ("--where", "age // 10 = 6")
    assert "declare it (--read-as age=integer, decimal or text)" in said_of(here, *words, *tens)
    assert here(*words, *tens, "--read-as", "age=integer").json["n"] == 1
    assert "only a condition asks for" in said_of(here, *words, "--read-as", "age=integer")
    assert "there is no column 'agee'" in said_of(here, *words, *tens, "--read-as", "agee=text")


@pytest.mark.parametrize("ending", [".xlsb", ".xls", ".ods", ".XLS"])
def test_a_workbook_is_to_be_saved_as_csv_and_not_renamed(
    here: Semidp, tmp_path: Path, ending: str
) -> None:
    (tmp_path / f"people{ending}").write_bytes(b"PK\x03\x04")
    sentence = said_of(here, "release", f"people{ending}", *TABLE, "--mu", "1", "--out", "out")
    assert "is a workbook" in sentence
    assert "save it as CSV" in sentence
    assert "end it in" not in sentence


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty: it needs a header"),
        (b" \n\n", "is empty: it needs a header"),
        (b"sex,region\n", "holds no record"),
        (codecs.BOM_UTF16_LE + PEOPLE.encode("utf-16-le"), "is text in UTF-16: save it as UTF-8"),
        (PEOPLE.encode("utf-16-be"), "is text in UTF-16: save it as UTF-8"),
        (
            PEOPLE.encode() + f"ü{SECRET},n,3\n".encode("latin-1"),
            "not UTF-8, but Latin-1 or Windows-1252 perhaps",
        ),
        ("sex,größe\nf,1\n".encode("cp1252"), "not UTF-8, but Latin-1 or Windows-1252 perhaps"),
        (
            PEOPLE.encode() + f"f,n,3,{SECRET}\n".encode(),
            "has records with more or fewer values than its header",
        ),
        (PEOPLE.encode() + b"f,n\n", "has records with more or fewer values than its header"),
        (PEOPLE.encode() + f'f,n,"{SECRET}\n'.encode(), "has a quote that is not closed"),
        (b"PK\x03\x04" + bytes(range(256)), "is a workbook or an archive and no text"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_cannot_be_read_says_why(
    here: Semidp, tmp_path: Path, content: bytes, said: str, packed: bool
) -> None:
    name = "people.csv.gz" if packed else "people.csv"
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    sentence = said_of(here, "release", name, *TABLE, "--mu", "1", "--out", "out")
    assert f"{name} {said}" in sentence or said in sentence
    assert "allow_empty=true" in sentence or said != "holds no record"


@pytest.mark.parametrize(
    "fault", [f"f,n,3,{SECRET}\n".encode(), b"f,n\n", f"ü{SECRET},n,3\n".encode("latin-1")]
)
def test_a_fault_far_down_a_file_says_why_too(here: Semidp, tmp_path: Path, fault: bytes) -> None:
    """The first records are read when a file is opened, and the others when they are counted, or a
    WHERE is typed.
    """
    (tmp_path / "people.csv").write_bytes(
        PEOPLE.encode() + b"f,n,1\n" * 300_000 + fault + b"m,s,2\n" * 300_000
    )
    expected = "not UTF-8" if fault[0] > 127 else "more or fewer values than its header"
    for more in ((), ("--where", "age > 1")):
        assert expected in said_of(
            here, "release", "people.csv", *TABLE, *more, "--mu", "1", "--out", "out"
        )


def test_a_whole_budget_is_not_shared(here: Semidp, tmp_path: Path) -> None:
    words = ("release", people(tmp_path), *TABLE, "--mu", "1", "--out", "out")
    sentence = said_of(here, *words, "--set", "share=tables=2")
    assert "--set share=… divides a budget, and tables has all of it here: leave it out" in sentence
    both = ("--group", "sex", "--mean", "age", "--bounds", "age=0,100")
    assert "(did you mean 'tables'?): tables, mean-age do" in said_of(
        here, *words, *both, "--set", "share=table=2"
    )


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            'invariant = ["sex"]',
            "a plan has no key 'invariant' (did you mean 'invariants'?): its keys are",
        ),
        ('exact = ["sex"]', "a plan has no key 'exact': write invariants (docs/plan.md)"),
        ("bins = [0, 18]", "a plan has no key 'bins': write [[feature]] bins (docs/plan.md)"),
        ("report_detla = 1e-6", "a plan has no key 'report_detla' (did you mean 'report_delta'?)"),
        ('[[tables]]\nfeatures = ["sex"]', "a plan has no key 'tables' (did you mean 'table'?)"),
        (
            '[[table]]\nfeature = ["sex"]',
            "a table of a plan has no key 'feature' (did you mean 'features'?)",
        ),
        (
            '[[feature]]\nname = "sex"\nlevel = ["f"]',
            "a feature has no key 'level' (did you mean 'levels'?)",
        ),
        ("qqqq = 1", "a plan has no key 'qqqq': its keys are"),
    ],
)
def test_a_mistyped_key_of_a_plan_names_the_nearest(
    here: Semidp, tmp_path: Path, plan: str, said: str
) -> None:
    (tmp_path / "plan.toml").write_text(plan + "\n")
    assert said in said_of(
        here, "release", people(tmp_path), "--plan", "plan.toml", "--mu", "1", "--dry-run"
    )


def test_a_mistyped_column_names_the_nearest(here: Semidp, tmp_path: Path) -> None:
    words = ("--table", "sex,regoin", "--invariant", "sex", "--mu", "1", "--out", "out")
    assert "no column 'regoin' (did you mean 'region'?)" in said_of(
        here, "release", people(tmp_path), *words
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--where", "sex = f"), "'f' is no column, and text stands in single quotes"),
        (("--where", 'sex = "f"'), "'f' is no column, and text stands in single quotes"),
        (("--where", "regoin = 'n'"), "'regoin' is no column (did you mean 'region'?)"),
        (("--where", "age => 5"), "the WHERE holds =>, which is not a comparison: write >="),
        (("--where", "age =< 5"), "the WHERE holds =<, which is not a comparison: write <="),
        (
            ("--levels", "sex=F,M"),
            "(--levels sex=a,b names all of them, in the letters and capitals of the data; codes of"
            " missing values are --set na=NA,-9; --where leaves out rows such as totals)",
        ),
        (
            ("--bins", "age=20,30", "--table", "sex,age"),
            "(--bins age=,0,18, has no lower and no upper end)",
        ),
        (
            ("--all-pairs", "sex"),
            "a table for each pair of features needs two or more, not sex alone",
        ),
        (("--delta", "2"), "delta must lie between 0 and 1"),
    ],
)
def test_further_slips_say_what_to_do(
    here: Semidp, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in said_of(
        here, "release", people(tmp_path), *TABLE, *words, "--mu", "1", "--out", "out"
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("budget", [("--mu", "1000000"), ("--epsilon", "50"), ("--rho", "100")])
def test_a_budget_that_protects_nobody_is_warned_of(
    here: Semidp, tmp_path: Path, budget: tuple[str, str]
) -> None:
    words = ("release", people(tmp_path), *TABLE, *budget)
    for more in (("--dry-run",), ("--out", "out")):
        assert (
            "warning: This budget is so large that almost nobody is protected"
            in here(*words, *more).err
        )
    assert here(*words, "--dry-run", "--format", "json").json["warnings"]
    assert here("release", "people.csv", *TABLE, "--mu", "1", "--dry-run").err == ""


def test_a_folder_where_nothing_can_be_made_is_not_a_run_that_writes(
    here: Semidp, tmp_path: Path
) -> None:
    sentence = said_of(here, "release", people(tmp_path), *TABLE, "--mu", "1", "--out", "/proc/x")
    assert "cannot write /proc/x: no file can be made in that folder" in sentence
    assert "another run" not in sentence


def test_a_missing_value_names_the_option(here: Semidp, tmp_path: Path) -> None:
    data = people(tmp_path, PEOPLE + "f,,3\nm,n,\n")
    words = ("release", data, "--mu", "1", "--out", "out")
    sentence = said_of(
        here, *words, "--table", "sex,region", "--invariant", "sex", "--levels", "region=n,s"
    )
    assert (
        "feature 'region' has missing values: declare a null level for it (--set"
        " null_level=region=unknown" in sentence
    )
    sentence = said_of(here, *words, "--group", "sex", "--mean", "age", "--bounds", "age=0,100")
    assert "--where 'age IS NOT NULL', or fill them in" in sentence
    mended = ("--set", "null_level=region=unknown", "--levels", "region=n,s")
    assert here(*words, "--table", "sex,region", "--invariant", "sex", *mended).code == 0
    mended = (
        "--group",
        "sex",
        "--mean",
        "age",
        "--bounds",
        "age=0,100",
        "--where",
        "age IS NOT NULL",
        "--force",
    )
    assert here(*words, *mended).code == 0


def test_an_outcome_has_the_same_grid_in_python_and_on_the_command_line(
    here: Semidp, tmp_path: Path
) -> None:
    asked = package.mean("age", by="sex", bounds=(0, 100)).outcome
    assert asked == package.Outcome("age", 0, 100, steps=1_000_000)
    words = (
        "--group",
        "sex",
        "--mean",
        "age",
        "--bounds",
        "age=0,100",
        "--mu",
        "1",
        "--out",
        "out",
        "--quiet",
    )
    assert here("release", people(tmp_path), *words).code == 0
    (request,) = package.Release.load("out").plan.requests
    assert request.outcome == asked


@pytest.mark.parametrize(
    "given", [{"mu": 1}, {"epsilon": 1, "delta": 1e-9}, {}, {"kind": "mu", "mu": 1}]
)
def test_a_budget_without_a_kind_is_a_sentence(given: dict[str, object]) -> None:
    with pytest.raises(
        InputError, match=r"^a budget is Budget\.zcdp\(rho\), Budget\.gdp\(mu\), Budget\.pure"
    ):
        package.Budget(**given)  # type: ignore[arg-type]


def test_a_table_is_found_by_its_features_in_any_order() -> None:
    records = {"sex": [*"fmmf"], "region": [*"nsns"]}
    plan = package.Plan(
        [package.publish.TableRequest(["sex", "region"], package.Budget.gdp(1))], ["sex", "region"]
    )
    release = package.run(plan, records)
    for name in (
        ["sex", "region"],
        ("region", "sex"),
        "sex-region",
        "table",
        iter(["sex", "region"]),
    ):
        assert release.table(name) is release.tables[0]
    for name, said in (
        (["sex", "ward"], "there is nothing called 'sex-ward' here"),
        ("tabel", r"nothing called 'tabel' here \(did you mean 'table'\?\); there are"),
        (3, "the features of a table are a list"),
        ([["sex"]], "each of the features"),
    ):
        with pytest.raises(SemidpError, match=said):
            release.table(name)  # type: ignore[arg-type]
