"""Statistics: what can be asked for, measured and published, one folder or module each.

`protocol` defines what the rest of semidp knows about a statistic, and finds one by its recorded
kind: a folder with a ``kind.py``, or a module with a ``KIND``, is a statistic, and nothing else
lists it. ``tests/toy`` has a small one to copy.
"""
