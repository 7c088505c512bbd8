"""Features, schemas and tables of counts.

`features` holds one feature and its nested depths, `schema` several features with structural zeros
and tables of counts.
"""
