"""What a verification has found: what is as recorded, what could not be verified, and what differs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedflat.bench.files.checksums import DamagedFileError
from fedflat.bench.input.errors import UserError, one_line


class DifferenceError(UserError):
    """Something is not as recorded. The message says what, and what to do."""


@dataclass
class Verification:
    """The findings about a run or a file, in words."""

    about: Path
    verified: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)

    @contextmanager
    def of(self, what: str) -> Iterator[list[str]]:
        """Add a finding: if the block ends without an error, `what` is verified, or what the block adds to the list.

        A damaged file and a `DifferenceError` differ. Another `UserError` is the reason why `what` is not verified.
        """
        found: list[str] = []
        try:
            yield found
        except (DamagedFileError, DifferenceError) as error:
            if str(error) not in self.differs:
                self.differs.append(str(error))
        except UserError as error:
            self.unverified.append(f"{what} ({error})")
        else:
            self.verified += found or [what]

    def __str__(self) -> str:
        """One line, whatever characters the files of a run contain."""
        verified = ", ".join(self.verified)
        if self.differs:
            verdict = f"differs: {'; '.join(self.differs)}"
        elif self.unverified:
            verdict = f"verified in part: {verified or 'nothing'}; not verified: {', '.join(self.unverified)}"
        else:
            verdict = f"verified: {verified}"
        return one_line(f"{self.about}: {verdict}")
