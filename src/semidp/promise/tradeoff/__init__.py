"""Tradeoff functions and budgets: how hard it is to tell two datasets apart.

`function` is the page to read first. `smooth` has Gaussian, zCDP and Laplace curves, `polygons` the
piecewise linear ones, `composition` what several give together. `budget` has budgets, the functions
that make curves from numbers, and conversions.
"""
