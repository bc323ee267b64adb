"""The columns that name a run in every tidy file."""

IDS = ["dataset", "partition", "participation", "method"]
"""Those of a cell; an experiment has each combination once."""

RUN = [*IDS, "seed"]
