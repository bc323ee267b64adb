"""The command behind `make audit`: writes licences.md and hashes.txt, and prints known vulnerabilities."""

import sys
from pathlib import Path

from fedflat.bench.input.errors import UserError
from studies.audit import hashes, licences
from studies.audit.vulnerabilities import audit


def main(tools: Path) -> int:
    """`tools`: the folder of the commands pip-licenses, uv and pip-audit."""
    try:
        for file, write in ((licences.PAGE, licences.write), (hashes.FILE, hashes.write)):
            print(f"{file.name}: {'written again' if write(tools) else 'up to date'}")
    except UserError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    code, lines = audit(tools)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
