"""Numbers for people have the digits that they deserve, wherever they are shown; files keep all."""

import re

import numpy as np
import pytest

import semidp
from semidp import Release
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.statistics.outcomes.noise_law import Confidence

NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?")


def people(small: int = 6) -> dict[str, list]:
    draw = np.random.default_rng(3)
    income = draw.lognormal(10.3, 0.5, 1200).round(2).tolist()
    region = ["north", "south"] * 600
    region[:small] = ["airport"] * small
    return {"region": region, "sex": ["f", "m"] * 600, "income": income}


@pytest.fixture(scope="module")
def release() -> Release:
    bounds, confidence = (0, 200_000), Confidence(differences=True)
    return semidp.release(
        people(),
        semidp.mean("income", by="region", bounds=bounds, confidence=confidence),
        semidp.total("income", by="region", bounds=bounds),
        semidp.regression("income", on=["region", "sex"], bounds=bounds),
        semidp.median("income", by="region", bounds=bounds, mechanism="selection"),
        mu=2,
        randomness=SeededRandomness(1),
    )


def test_no_number_on_a_terminal_has_more_digits_than_its_error(release: Release) -> None:
    compared = 0
    for result in release.results[:3]:
        for _, line in result.summary_lines():
            if " ± " not in line:
                continue
            error = NUMBER.findall(line.partition(" ± ")[2])[0].replace(",", "")
            assert len(error.strip("0.").replace(".", "")) <= 2, line
            compared += 1
    assert compared == 3 + 3 + 4


def test_ends_of_intervals_are_rounded_outward_in_the_report(release: Release) -> None:
    result = release.results[0]
    section, differences = result.sections()
    lower, upper = section.columns.index("lower"), section.columns.index("upper")
    sheet = result.sheets[0]
    for row, low, high in zip(section.rows, sheet["lower"], sheet["upper"], strict=True):
        shown = [float(row[place].replace(",", "")) for place in (lower, upper)]
        assert shown[0] <= low
        assert shown[1] >= high
        assert shown != [low, high]
    assert all("." not in cell for row in differences.rows for cell in row[2:])


def test_a_notebook_shows_what_the_error_leaves_and_the_file_all_of_it(release: Release) -> None:
    sheet = release.results[0].sheets[0]
    mean = sheet.to_dict()["mean"][1]
    assert repr(mean) not in sheet._repr_html_()
    assert repr(mean).encode() in sheet.csv()
    assert f"<td>{mean:.5g}</td>" not in sheet._repr_html_()


def test_a_median_of_few_records_is_marked(release: Release) -> None:
    result = release.results[3]
    lines = [line for _, line in result.summary_lines()]
    assert [line for line in lines if line.startswith("airport: ≈")]
    assert not [line for line in lines if line.startswith("north: ≈")]
    assert "noise dominates 1 of 3 groups" in lines[-1]
    assert "Noise dominates 33% of the groups (median" in result.cautions()[0]
    (section,) = result.sections()
    assert section.rows[0][2].startswith("≈")
    assert "GDP" not in " ".join([*section.paragraphs, *lines])
