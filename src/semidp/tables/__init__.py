"""Schemas and tables of counts: what may occur, and how often it does.

A `Schema` declares features, their levels and the combinations that cannot occur; a `Table` is a dense array of
integer counts on a schema. Files and databases live in `engines`; which margins are public is in `spaces`.
"""

from semidp.tables.counts import MAX_CELLS, Table, no_column, refuse_cells
from semidp.tables.features import HOW_NUMBERS, TRUTH, Feature, Nest, missing_value, value_text
from semidp.tables.schema import Schema, StructuralZero

__all__ = [
    "HOW_NUMBERS",
    "MAX_CELLS",
    "TRUTH",
    "Feature",
    "Nest",
    "Schema",
    "StructuralZero",
    "Table",
    "missing_value",
    "no_column",
    "refuse_cells",
    "value_text",
]
