"""Sensitivity spaces: how far two tables, or two values of any query, can be apart while everything published stays.

`space` is the page to read first; `bounds`, `patterns` and `enumeration` find the norms, `projection` the noise's
subspace, `explicit` serves queries that are not tables. Mechanisms and their noise live elsewhere.
"""

from semidp.sensitivity.bounds import Norms
from semidp.sensitivity.explicit import ExplicitSpace
from semidp.sensitivity.space import SensitivitySpace, sensitivity_space

__all__ = ["ExplicitSpace", "Norms", "SensitivitySpace", "sensitivity_space"]
