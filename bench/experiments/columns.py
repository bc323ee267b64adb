"""Names in tidy files: the columns that name a run, and the files that runs themselves leave."""

IDS = ["dataset", "partition", "participation", "method"]
"""Those of a cell; an experiment has each combination once."""

RUN = [*IDS, "seed"]

RUN_FILES = ("metrics", "partition")
"""Kinds of tidy files that are no analyses."""

RESERVED = (*RUN_FILES, "train")
"""Names that no analysis may have: their files and logs are others'."""
