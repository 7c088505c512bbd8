"""The command line: parse, call, print. One file a command; `_program` puts them together and ends
them well.

What commands share is in `_command`, `_options` and `_output`.
"""

from semidp.cli._program import COMMANDS, main, run

__all__ = ["COMMANDS", "main", "run"]
