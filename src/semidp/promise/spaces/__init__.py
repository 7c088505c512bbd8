"""What is published exactly, the datasets that agree with it, and how many records must change
together.

`dataspace` holds `Margin` and `Dataspace`. `adjacency` says which datasets are compared, and
computes or bounds a(t): `structure` tells it how margins overlap, `graver` what Graver bases bound,
`witness` what small spaces list. `exchange_blocks` has the exchanges of its second kind,
`protection` persons with several records. `linked` has units and members and `widest_spaces`
margins known by name alone.
"""
