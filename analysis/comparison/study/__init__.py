"""Does flatness matter? Statistics of flatness measures against results, over a table of runs."""
