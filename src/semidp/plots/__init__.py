"""Every picture of the package: functions from values to matplotlib figures, in one style.

Nothing here computes a guarantee or reads a file. `style.png` and `style.svg` turn a figure into bytes or text.
"""

from semidp.plots.audit import audit_plot
from semidp.plots.curves import loss_plot, tradeoff_plot
from semidp.plots.groups import estimates_plot
from semidp.plots.power import power_lines, power_plot
from semidp.plots.style import png, svg
from semidp.plots.tables import heatmap

__all__ = [
    "audit_plot",
    "estimates_plot",
    "heatmap",
    "loss_plot",
    "png",
    "power_lines",
    "power_plot",
    "svg",
    "tradeoff_plot",
]
