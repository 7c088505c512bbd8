"""Tradeoff functions and budgets: how hard it is to tell two datasets apart.

Read `function` first. `smooth` has Gaussian, zCDP and Laplace curves, `polygons` the piecewise
linear ones, `composition` combines several. `budget` has budgets, the functions that make curves
from numbers, and conversions.
"""
