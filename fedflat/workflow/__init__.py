"""The rules of the pipeline, for a Snakefile to include. They read config/config.yaml next to it, if it is there.

They cannot be a Snakemake module: Snakemake ignores the onstart, onsuccess and onerror of modules. It takes no rule of
an included file for the default one, so the Snakefile itself has the rule `all`.
"""

from pathlib import Path

RULES = str(Path(__file__).with_name("rules.smk"))
