"""The parts of a page of a benchmark of flatness: pairs, rankings, the search, and methods against themselves."""
