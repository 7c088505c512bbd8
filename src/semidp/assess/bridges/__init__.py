"""Bridges: what the releases of other tools guarantee once some of their statistics are exact.

`privacy_functions` holds the privacy function of any tool, as a value and as a file; `opendp` reads
the measurements of OpenDP (the extra ``opendp``). Events of dp-accounting, and with them Opacus and
JAX-privacy, are in `promise.accounting`. `swapping` and `cell_keys` put what statistical
offices do without noise, or with noise by keys, on the same ruler.
"""
