"""Sensitivity spaces: how far two tables, or two values of any query, can be apart while everything published stays.

`space` is the page to read first; `norms` chooses among `patterns`, `listing`, `exchange` and `bounds`, `projection` is
the subspace of the noise, `explicit` serves queries that are not tables. Mechanisms and their noise live elsewhere.
"""

from semidp.sensitivity.bounds import Norms
from semidp.sensitivity.explicit import ExplicitSpace
from semidp.sensitivity.space import MatrixForm, SensitivitySpace, sensitivity_space

__all__ = ["ExplicitSpace", "MatrixForm", "Norms", "SensitivitySpace", "sensitivity_space"]
