"""release.json written by hand, so that any claim can be made on purpose."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def feature(name: str, levels: str | Sequence[str]) -> dict[str, Any]:
    return {"name": name, "levels": list(levels)}


def nested(names: Sequence[str], tree: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": names[-1], "nest": list(names), "tree": tree}


def margin(names: str, counts: Sequence[int]) -> dict[str, Any]:
    return {"features": names.split(","), "counts": list(counts)}


def guarantee(kind: str, value: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The guarantee and the budget of one number: mu squared, rho or epsilon."""
    if kind == "mu":
        return {"kind": "gaussian", "mu_squared": value}, {"kind": "gdp", "mu": 100}
    if kind == "rho":
        return {"kind": "zcdp", "rho": value}, {"kind": "zcdp", "rho": value}
    stated = {"kind": "approximate", "epsilon": value, "delta": "0", "group": 1}
    return stated, {"kind": "pure", "epsilon": value, "delta": 0}


LAWS = {"mu": "rounded gaussian", "rho": "discrete gaussian", "epsilon": "laplace"}


def document(
    features: Sequence[Mapping[str, Any]],
    margins: Sequence[Mapping[str, Any]],
    stated: tuple[str, str],
    size: str,
    *,
    a: int = 1,
    adjacency: str | int = "worst-case",
    table: str = "",
    mean: Mapping[str, Any] | None = None,
    zeros: Sequence[Mapping[str, Any]] = (),
    n: int | None = None,
    law: str = "",
) -> dict[str, Any]:
    """One table or one mean with noise of a size (sigma squared, or the scale of Laplace noise)."""
    claim, budget = guarantee(*stated)
    key = "scale" if stated[0] == "epsilon" else "sigma2"
    law = law or LAWS[stated[0]]
    noise = {"mechanism": law, "claim": "exact", "law": law, key: size}
    entry: dict[str, Any] = {"name": "one", "noise": noise, "guarantee": claim, "budget": budget}
    records = n or sum(margins[0]["counts"])
    plan: dict[str, Any] = {
        "invariants": [each["features"] for each in margins],
        "adjacency": adjacency,
        "report_delta": "1e-9",
        "table": [],
        "group": [],
    }
    release = {
        "private": True,
        "plan": plan,
        "dataspace": {
            "schema": {"feature": list(features), "structural_zero": list(zeros)},
            "n": records,
            "margins": list(margins),
        },
        "a": {"used": a, **({"kind": "exchange"} if adjacency == "exchange" else {})},
        "guarantee": claim,
        "budget": budget,
        "epsilon": 1e6,
        "report_delta": 1e-9,
        "tables": [],
        "groups": [],
        "disclosures": [],
    }
    if mean is not None:
        plan["group"] = [{"name": "one", "statistic": "mean", **mean}]
        release["groups"] = [entry]
    else:
        plan["table"] = [{"name": "one", "features": table.split(",")}]
        release["tables"] = [{**entry, "features": table.split(",")}]
    return release


def write(folder: Path, release: Mapping[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "release.json").write_text(json.dumps(release), encoding="utf-8")
    return folder


def linked(
    members: Sequence[Mapping[str, Any]],
    units: Sequence[Mapping[str, Any]],
    exact: Sequence[Mapping[str, Any]],
    tables: tuple[str, str],
    sizes: tuple[dict[str, str], dict[str, str]],
    *,
    a: int,
    adjacency: str = "exchange",
    protect: str = "member",
    own: int = 0,
    n: int = 160,
    unit_count: int = 60,
    squared: str = "1",
) -> dict[str, Any]:
    """Linked files: one table of members and one of units, by residuals with noise of sizes."""
    stated, budget = guarantee("mu", squared)
    kinds = []
    for table, of_kind in zip(tables, sizes, strict=True):
        residuals = [{"features": k.split(","), "sigma2": v} for k, v in of_kind.items()]
        kinds.append(
            {"law": "rounded", "residuals": residuals, "tables": [{"features": table.split(",")}]}
        )
    noise = {"mechanism": "linked residuals", "law": "linked residuals", "claim": "exact"}
    link = {"protect": protect, "least": 1, "most": 4, "derived": ["size"]}
    changed: dict[str, Any] = {
        "used": a,
        **({"kind": "exchange"} if adjacency == "exchange" else {}),
    }
    if protect == "unit":
        changed["protection"] = {"protect": "unit", "most": 4, "least": 1}
        changed["units"] = {"own": own, "size": 4, "derived": 9}
    unit_space = {"schema": {"feature": list(units)}, "n": unit_count, "margins": []}
    return {
        "private": True,
        "plan": {
            "invariants": [each["features"] for each in exact],
            "adjacency": adjacency,
            "units": {"protect": protect, "most": 4, "least": 1},
            "table": [{"features": tables[0].split(",")}],
            "unit_table": [{"features": tables[1].split(",")}],
        },
        "dataspace": {
            "schema": {"feature": list(members)},
            "n": n,
            "margins": list(exact),
            "units": unit_space,
            "link": link,
        },
        "a": changed,
        "guarantee": stated,
        "budget": budget,
        "epsilon": 1e6,
        "report_delta": 1e-9,
        "linked": [
            {
                "name": "linked",
                "noise": noise,
                "members": kinds[0],
                "units": kinds[1],
                "guarantee": stated,
                "budget": budget,
            }
        ],
    }
