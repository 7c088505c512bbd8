"""What is published exactly, the datasets that agree with it, and how many records must change
together.

`dataspace` holds `Margin` and `Dataspace`; `adjacency` says which datasets are compared and
computes a(t); `exchange` is the second kind of adjacency; `structure` says how margins overlap;
`graver`, `listing` and `witness` count and show; `unknown_totals` serves margins known by name
alone; `outcomes` serves records with a private outcome.
"""
