"""An empirical check of a claimed guarantee: attack a mechanism on a pair of tables and see whether
the claim survives.

`attack` is the page to read first. `attacked_pairs` asks a mechanism for the worst pair that the
public totals allow, and `supplied_pairs` checks one that somebody gives. `scores` and `digits` are
what an attacker may look at, `attack_bounds` what the counts prove. `energy` compares the noise
with what is stated of it. `claims` reads what a plan or a release promises; `foreign` audits
samples, functions and odds-ratio tests.
"""
