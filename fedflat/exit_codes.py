"""Exit codes of commands, as in shells: 128 + the number of the signal. Wrong input gives 2."""

INTERRUPTED = 130
"""After Ctrl-C."""

CLOSED_PIPE = 141
"""If the reader of the output has ended, such as `head`."""
