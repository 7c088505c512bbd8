"""The page of ``semidp explore``: see what a plan would publish before anything is spent.

`controls` turns the form into a `Plan` and back, `semidp.present.forecasts` keeps what plans have
in common, `explorer_page` listens and answers requests. The state of the page is a `Plan` and
nothing else; what it shows is what ``--dry-run`` prints.
"""
