"""Known vulnerabilities of the pinned packages, by pip-audit."""

import json
import subprocess
from pathlib import Path
from textwrap import shorten

from fedflat.bench.input.errors import first_few
from studies.audit.pins import CONSTRAINTS

FOUND, NOT_CHECKED = 1, 2


def audit(tools: Path) -> tuple[int, list[str]]:
    """The exit code, and the lines to show. pip-audit in the folder `tools` asks PyPI for each pinned version."""
    command: list[str | Path] = [
        tools / "pip-audit",
        "--requirement",
        CONSTRAINTS,
        "--no-deps",
        "--disable-pip",
        "--format",
        "json",
    ]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    return answer(done.stdout, done.stderr)


def answer(stdout: str, stderr: str) -> tuple[int, list[str]]:
    """The exit code and the lines to show for what pip-audit has printed; it prints no JSON if it could not finish.

    An index without information on vulnerabilities, such as a mirror, knows none of the packages.
    """
    try:
        packages = json.loads(stdout)["dependencies"]
    except ValueError:
        printed = stderr.splitlines() or ["no reason given"]
        reason = next((line for line in printed if line.startswith("ERROR")), printed[-1])
        return NOT_CHECKED, [f"vulnerabilities are not checked: pip-audit fails ({shorten(reason, 200)})"]
    lines = [
        f"{package['name']} {package['version']}: {', '.join([found['id'], *found['aliases']])}; "
        f"fixed in: {', '.join(found['fix_versions']) or 'none'}"
        for package in packages
        for found in package.get("vulns", ())
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    checked = f"{len(packages) - len(skipped)} of {len(packages)} packages checked"
    if skipped:
        checked += f"; the service at PyPI cannot be reached, or does not know: {first_few(skipped)}"
    code = FOUND if lines else NOT_CHECKED if skipped else 0
    return code, [*lines, f"vulnerabilities: {len(lines)} known; {checked}"]
