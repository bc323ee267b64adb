"""The list of analyses on the command line, which must not need torch."""

import subprocess
import sys

from analysis.analyses import ANALYSES
from fedflat.describe_analysis import first_lines


def test_the_list_has_all_analyses() -> None:
    """It is parsed from the files, without importing them."""
    assert list(first_lines()) == sorted(ANALYSES)
    assert all(first_lines().values())


def test_the_command_line_starts_without_torch() -> None:
    """Importing torch takes longer than everything else that `fedflat --help` does."""
    command = "import sys, fedflat.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
