"""Several releases of the same records as one: `releases_together` is the page to read first.

`tree_layout` says where the cells of all features stand for the estimator of `semidp.combining`,
`evidence` turns what a release measured into measurements with their noise, `combination` answers
from all of it, `combined_tables` is the published result, `combination_check` computes it again.
"""
