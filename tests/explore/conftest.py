"""Commands run as they do in the tests of the command line."""

from tests.cli.conftest import here as here
from tests.cli.conftest import semidp as semidp
