"""Draw the chart at the top of README: a release of Berkeley's admissions of 1973, with its errors.

Run it from the root of the repository: ``python docs/figures/first_release.py``.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import semidp as sd

release = sd.release(
    files("semidp") / "data" / "ucb_admissions.csv",
    sd.table("dept", "gender", "admit"),
    exact=[("dept", "gender"), "admit"],
    count="count",
    mu="0.3",
)
table = release["table"]
depts, genders = (feature.levels for feature in table.schema.features[:2])
admitted = table.estimate[:, :, 0]
errors = 1.96 * table.standard_errors[:, :, 0]
applied = table.counts.sum(axis=2)

figure = Figure(figsize=(7.6, 3.3), dpi=150, layout="constrained")
FigureCanvasAgg(figure)
axes = figure.add_subplot()
places = np.arange(len(depts))
for number, (gender, color) in enumerate(zip(genders, ("#8B5A9F", "#0072B2"), strict=True)):
    left = places + (number - 0.5) * 0.4
    axes.bar(left, applied[:, number], 0.36, fill=False, edgecolor="#777", linewidth=1)
    axes.bar(left, admitted[:, number], 0.36, color=color, alpha=0.75, label=f"{gender}: admitted")
    axes.errorbar(
        left, admitted[:, number], errors[:, number], fmt="none", ecolor="#222", capsize=3
    )
    for place, total in zip(left, applied[:, number], strict=True):
        axes.annotate(
            f"{total}", (place, total), (0, 2), textcoords="offset points", ha="center", fontsize=7
        )
# A bar of no rows would stand in the legend in blue.
axes.add_patch(Rectangle((0, 0), 0, 0, fill=False, edgecolor="#777", label="applied: exact"))
axes.errorbar([], [], [], fmt="none", ecolor="#222", capsize=3, label="95% of the noise")
axes.set_xticks(places, [f"Department {dept}" for dept in depts], fontsize=8)
axes.set_ylabel("applicants")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False, fontsize=8, ncols=2)
figure.savefig(Path(__file__).parent / "first-release.png")
