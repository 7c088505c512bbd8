"""Which options mend what the library found missing: the library raises facts, the command line adds its flags."""

from semidp.errors import SemidpError

HINTS = {
    "levels": "--levels {first}=a,b or --schema FILE, --invariant {first}, or --levels-from-data",
    "nested levels": "--schema FILE with a tree or a lookup, --invariant {first}, or --levels-from-data",
    "repeated names": '--schema FILE with nest and names = "repeat" for {all}',
    "margin": "--invariant {all}",
    "adjacency": "--a N",
    "bounds": "--bounds {first}=0,100",
    "grid": "--grid {first}=100",
    "table": "--table a,b",
    "group": "--group a",
    "factors": "--on a,b",
    "quantile level": "--quantile-level 0.95",
    "request": "--table a,b, --group a --mean b, or --regress b --on a",
    "from": "--from TABLE",
    "two levels": "--where, --bins or --levels",
    "memory": "--partition, --table with fewer features or at a coarser depth, or --memory",
    "partition": "--nest state,county --partition state",
    "unfinished": "--resume or --discard",
    "ledger": "semidp ledger FILE --rho 1",
}
"""What `SemidpError.needs` says, and the options for it."""


def hinted(error: SemidpError) -> str:
    """Return the sentence of an error with the options that mend it.

    >>> hinted(SemidpError("a(t) is not known: give a", needs="adjacency"))
    'a(t) is not known: give a (--a N)'
    """
    hint = HINTS.get(error.needs)
    if hint is None:
        return str(error)
    first = error.names[0] if error.names else ""
    return f"{error} ({hint.format(first=first, all=','.join(error.names))})"
