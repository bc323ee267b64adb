"""The targets of Snakemake, the files that they need, and estimates of their cost."""
