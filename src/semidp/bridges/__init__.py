"""Bridges: what the releases of other tools guarantee once some of their statistics are exact.

`privacy_functions` holds the privacy function of any tool, as a value and as a file; `opendp` reads the measurements of
OpenDP (the extra ``opendp``). Events of dp-accounting, and with them Opacus and JAX-privacy, are in accounting.
"""

from semidp.bridges.privacy_functions import Assessment, LossMeasure, Metric, PrivacyFunction, assess

__all__ = ["Assessment", "LossMeasure", "Metric", "PrivacyFunction", "assess"]
