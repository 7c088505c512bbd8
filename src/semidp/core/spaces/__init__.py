"""What is published exactly, the datasets that agree with it, and how many records must change
together.

`dataspace` holds `Margin` and `Dataspace`; `adjacency` says which datasets are compared and
computes a(t); `exchange_blocks` serves its second kind; `structure` says how margins overlap;
`graver`, `enumeration` and `witness` count and show; `widest_spaces` serves margins known by name
alone; `outcome_adjacency` serves records with a private outcome.
"""
