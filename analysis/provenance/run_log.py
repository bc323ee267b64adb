"""What the log of a run records of its course, without the losses of single rounds and the folders of the machine."""

import re

_EVENTS = (
    r"started\b",
    r"resumed after round \d+$",
    r"engine: [^';\n]+$",  # not those that name files of the machine
    r"round (?P<last>\d+) of (?P=last)\b.*$",
    r"(?:finished|diverged|stopped) after round \d+.*$",
)
_EVENT = re.compile(rf"^(\S+ \S+?)(?:,\d+)? ({'|'.join(_EVENTS)})", re.MULTILINE)


def events(log: str) -> str:
    """The lines that say when a run was started, resumed and finished, with its engine and its last round.

    The time is shortened to the second. The events of events are the same lines.
    """
    return "".join(f"{time} {event}\n" for time, event, _ in _EVENT.findall(log))
