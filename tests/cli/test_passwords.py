"""The password of a database address is in no output: neither in the log, nor in a message or a
file.
"""

from pathlib import Path
from urllib.parse import quote

import pytest

from semidp.errors import SemidpError
from semidp.publish.sources import contract
from semidp.publish.sources.opening import open_source
from tests.cli.conftest import Semidp

MARK = "hunter2"
PASSWORDS = [
    MARK,
    f"a/{MARK}",
    f"1/{MARK}",  # up to the slash it looks like a port
    f"1?{MARK}",
    f"1#{MARK}",
    f"a@{MARK}",
    f"{MARK}@b",
    f"a:{MARK}",
    f"a {MARK} b",
    f"a'{MARK}\"b",
    f"[{MARK}",
    f"%{MARK}",
    f"ü{MARK}",
    f"&x={MARK}",
]
ADDRESSES = [
    *(f"postgres://me:{word}@host/db" for word in PASSWORDS),
    *(f"postgres://me:{quote(word, safe='')}@host:5432/db" for word in PASSWORDS[1:3]),
    f"POSTGRES://me:{MARK}@host/db",
    f"postgresql+psycopg://me:{MARK}@host/db",
    f"mysql://:{MARK}@host/db",
    f"spark://me:{MARK}@host:7077",
    f"postgres://me%3A{MARK}@host/db",
    f"postgres://me:{MARK}@host:port/db",
    f"postgres://me:{MARK}",
    f"postgres://me:{MARK}/db",
    f"postgres://me@host/db?password={MARK}",
    f"postgres://me@host/db?PASSWORD={MARK}&sslmode=require",
    f"postgres://me@host/db?sslmode=require&sslpassword={MARK}",
    f"postgres://me@host/db?pass%77ord={MARK}",
    f"postgres://me@host/db?passwd={MARK}",
    f"postgres://me@host/db#password={MARK}",
    f"postgres://me@host/db&password={MARK}",
    f"duckdb://md:people?motherduck_token={MARK}",
    f"snowflake://me@account/db?private_key={MARK}",
    f"postgres:/me:{MARK}@host/db",
    f"postgres:me:{MARK}@host/db",
    f"me:{MARK}@host/db",
    f"host=host user=me password={MARK} dbname=db",
    f"Server=host;Uid=me;Pwd={MARK};",
]
COMMANDS = [
    line.split()
    for line in """
        release {} --from people --table sex --levels sex=f,m --mu 1 --out out
        release {} --table sex --levels sex=f,m --mu 1 --dry-run
        release p.csv --units {} --link h --most 2 --table sex --mu 1 --out out
        release --plan {} --out out
        release p.csv --table sex --exact sex --mu 1 --ledger {} --out out
        release p.csv --table {} --mu 1 --out out
        release p.csv --from {} --table sex --mu 1 --out out
        analyze {} --from people --table sex
        analyze --data={}
        compare plan.toml --data {}
        test {} --rows sex --columns age --epsilon 1
        explore {} --no-browser
        audit {}
        assess swap {} --rate 0.1 --match sex --over age
        ledger {}
        show {}
        combine {} {}
        no-such-command {}
        {}
    """.strip().splitlines()
]


def leaks(here: Semidp, tmp_path: Path, words: list[str], address: str) -> list[str]:
    """Return the outputs of a command that hold the password; every one must end with code 2."""
    log = tmp_path / "log.txt"
    log.unlink(missing_ok=True)
    done = here(*(word.replace("{}", address) for word in words), "--log", log)
    outputs = {"stdout": done.out, "stderr": done.err, "log": log.read_text()}
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != log:
            outputs[path.name] = path.read_text(errors="replace")
    assert done.code == 2, (words, address, done)
    return [f"{name}: {words[0]} {address}" for name, text in outputs.items() if MARK in text]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.csv").write_text("h,sex\n1,f\n1,m\n2,m\n")
    (tmp_path / "plan.toml").write_text('invariants = [["sex"]]\n')
    return tmp_path


def test_no_output_of_a_command_holds_a_password(here: Semidp, folder: Path) -> None:
    seen = [leaks(here, folder, words, ADDRESSES[0]) for words in COMMANDS]
    seen += [leaks(here, folder, COMMANDS[0], address) for address in ADDRESSES]
    assert len(seen) == len(COMMANDS) + len(ADDRESSES) == 19 + 38
    assert [leak for found in seen for leak in found] == []


@pytest.mark.long
def test_no_output_holds_a_password_whatever_the_address(here: Semidp, folder: Path) -> None:
    seen = [leaks(here, folder, words, address) for words in COMMANDS for address in ADDRESSES]
    assert len(seen) == 19 * 38
    assert [leak for found in seen for leak in found] == []


def test_without_masks_the_log_would_hold_it(
    here: Semidp, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: the same search finds what was there before."""
    monkeypatch.setattr("semidp.cli._output.mask_passwords", lambda text: text)
    found = [leaks(here, folder, COMMANDS[0], address) for address in ADDRESSES[:14]]
    assert all(len(outputs) == 1 for outputs in found)
    assert all(output.startswith("log") for (output,) in found)


def test_no_exception_of_python_holds_a_password() -> None:
    for address in ADDRESSES:
        with pytest.raises(SemidpError) as caught:
            open_source(address, table="people")
        assert MARK not in str(caught.value)
        assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    "text",
    [
        "postgres://me@host:5432/db",
        "postgres:///db",
        "postgres://me@[::1]:5432/db?sslmode=require&sslkey=/k&passfile=/p",
        "spark://local",
        "duckdb:///data/a@b.db",
        "people.csv",
        "C:/people@home.csv",
        "cannot write s3:/bucket/out: permission denied",
        "pass=Y/people.parquet",
        "--proportion pass=Y",
        "--where token = 3",
        "mail me@host: see https://host/page",
    ],
)
def test_what_holds_no_password_stays(text: str) -> None:
    assert contract.mask_passwords(text) == text
    if "://" in text and " " not in text:
        contract.address_parts(text)
    else:
        assert not contract.is_address(text) or " " in text
