"""What exact numbers reveal by themselves, without noisy numbers, guarantees or data.

`published_counts` holds what is known and what follows from it step by step, `closed_bounds` the
bounds that a formula or a maximum flow proves, `program_bounds` the rest by linear and integer
programs. `findings` says what is certain, `proofs` why; `table_files` reads published tables.
"""
