"""Linear and logistic regression of a private outcome on features with exact counts.

`kind` has requests and results, `fits` the measurements and the estimates from them.
"""
