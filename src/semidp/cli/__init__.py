"""The command line: parse, call, print. A file holds a command, or a few that belong together;
`_program` puts them together and ends them well.

What commands share is in `_command`, `_options` and `_output`.
"""

from semidp.cli._program import COMMANDS as COMMANDS
from semidp.cli._program import main as main
from semidp.cli._program import run as run
