"""Tradeoff functions and budgets: how hard it is to tell two datasets apart.

`function` is the page to read first. `smooth` has Gaussian, zCDP and Laplace curves, `polygons` the
piecewise linear ones, `composition` what several give together, `curves` the functions that make
them.
"""
