"""Signed releases: every file of the folder, by the key that was named, and refused where one
differs.
"""

import sys
from pathlib import Path

import minisign
import pytest

from tests.cli.conftest import Semidp, one_sentence

WORDS = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region", "--rho", "1")


@pytest.fixture
def keys(tmp_path: Path) -> minisign.KeyPair:
    """Keys for `mine`, and the public one of somebody else."""
    (tmp_path / "people.csv").write_text("sex,region\n" + "f,n\nf,s\nm,n\nm,s\nm,s\n" * 20)
    pair = minisign.KeyPair.generate()
    (tmp_path / "mine.pub").write_bytes(bytes(pair.public_key))
    (tmp_path / "mine.key").write_bytes(bytes(pair.secret_key))
    (tmp_path / "other.pub").write_bytes(bytes(minisign.KeyPair.generate().public_key))
    return pair


@pytest.fixture
def signed(here: Semidp, keys: minisign.KeyPair, tmp_path: Path) -> Path:
    done = here("release", "people.csv", *WORDS, "--set", "sign=mine.key", "--out", "release")
    assert done.code == 0, done.err
    return tmp_path / "release"


def test_a_signed_release_is_verified(here: Semidp, signed: Path) -> None:
    done = here("show", "release", "--verify", "mine.pub")
    assert done.code == 0
    assert "signed     every file, by the key mine.pub" in done.out
    assert (
        here("show", "release", "--verify", "mine.pub", "--format", "json").json["verified"] is True
    )
    assert here("show", "release", "--format", "json").json["verified"] is False
    assert "not one of the key other.pub" in one_sentence(
        here("show", "release", "--verify", "other.pub")
    )
    assert here("release", "people.csv", *WORDS, "--out", "release", "--force").code == 0
    assert "is not signed" in one_sentence(here("show", "release", "--verify", "mine.pub"))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        "table.csv",
        "measurements.csv",
        "csv-metadata.json",
        "release.json",
        "report.html",
        "SHA256SUMS",
        "SHA256SUMS.minisig",
    ],
)
def test_every_file_is_signed(here: Semidp, signed: Path, name: str) -> None:
    whole = (signed / name).read_bytes()
    (signed / name).write_bytes(whole[:-2] + (b"8\n" if whole[-2:] == b"7\n" else b"7\n"))
    one_sentence(here("show", "release", "--verify", "mine.pub"))
    (signed / name).unlink()
    one_sentence(here("show", "release", "--verify", "mine.pub"))
    (signed / name).write_bytes(whole)
    assert here("show", "release", "--verify", "mine.pub").code == 0
    (signed / "more.csv").write_text("added later")
    assert "holds 'more.csv'" in one_sentence(here("show", "release", "--verify", "mine.pub"))


def test_no_file_may_be_added_whatever_it_is_called(here: Semidp, signed: Path) -> None:
    """A run that is killed at the last moment leaves its unfinished.json, which nobody signed: it
    must go first.
    """
    for name in ("unfinished.json", ".state", "part.json", "SHA256SUMS.old"):
        (signed / name).write_text('{"whole": true}')
        said = one_sentence(here("show", "release", "--verify", "mine.pub"))
        assert f"holds '{name}', against what was signed" in said
        (signed / name).unlink()
    (signed / ".DS_Store").write_bytes(b"\0")  # what a file browser leaves is no such file
    assert here("show", "release", "--verify", "mine.pub").code == 0


def test_the_list_is_what_sha256sum_reads(signed: Path) -> None:
    import hashlib

    lines = (signed / "SHA256SUMS").read_text().splitlines()
    assert [line[66:] for line in lines] == [
        "csv-metadata.json",
        "exact-region.csv",
        "exact-sex.csv",
        "measurements.csv",
        "release.json",
        "report.html",
        "table.csv",
    ]
    for line in lines:
        assert line[:66] == hashlib.sha256((signed / line[66:]).read_bytes()).hexdigest() + "  "


def test_an_encrypted_key_needs_its_password(
    here: Semidp, keys: minisign.KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.secret_key.encrypt("horse", opslimit=2**15, memlimit=2**24)
    (tmp_path / "mine.key").write_bytes(bytes(keys.secret_key))
    words = ("release", "people.csv", *WORDS, "--set", "sign=mine.key", "--out", "release")
    assert "SEMIDP_SIGN_PASSWORD" in one_sentence(here(*words))
    monkeypatch.setenv("SEMIDP_SIGN_PASSWORD", "donkey")
    assert "is wrong" in one_sentence(here(*words))
    assert not (tmp_path / "release").exists()
    monkeypatch.setenv("SEMIDP_SIGN_PASSWORD", "horse")
    assert here(*words).code == 0
    assert here("show", "release", "--verify", "mine.pub").code == 0


def test_what_is_no_key_is_said_before_anything_is_spent(here: Semidp, signed: Path) -> None:
    assert here("ledger", "book.json", "--rho", "5").code == 0
    words = ("release", "people.csv", *WORDS, "--ledger", "book.json", "--out", "two")
    for key, said in (
        ("people.csv", "no secret key"),
        ("nowhere.key", "cannot read"),
        ("/dev/null", "regular file"),
    ):
        assert said in one_sentence(here(*words, "--set", f"sign={key}"))
    assert here("ledger", "book.json", "--format", "json").json["charges"] == []
    for key, said in (("people.csv", "no public key"), ("nowhere.pub", "cannot read")):
        assert said in one_sentence(here("show", "release", "--verify", key))


def test_without_the_package_the_extra_is_named(
    here: Semidp, signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "minisign", None)
    assert "semidp[sign]" in one_sentence(here("show", "release", "--verify", "mine.pub"))
    assert here("show", "release").code == 0
