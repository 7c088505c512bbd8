"""Every picture of the package: functions from values to matplotlib figures, in one style.

Nothing here computes a guarantee or reads a file. `style.png` and `style.svg` turn a figure into bytes or text.
"""

from semidp.plots.figures import audit_plot, estimates_plot, heatmap, loss_plot, tradeoff_plot
from semidp.plots.style import png, svg

__all__ = ["audit_plot", "estimates_plot", "heatmap", "loss_plot", "png", "svg", "tradeoff_plot"]
