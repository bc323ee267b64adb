# The pipeline: expand grids -> train -> analyse -> tables and figures -> one page. config/config.yaml names the
# experiments, and explains every key of --config.
#
#   snakemake --cores 2                            the experiments, each with its page
#   snakemake --cores 2 quick_table_accuracy       one table, and all missing runs that it shows
#   snakemake --cores 2 --config rounds=5 seeds=[0] results=/tmp/try     the same at a smaller scale, in another folder
#   snakemake --cores 2 compare --config method=mine.py grid=bench1d     a method of your own against stored baselines
#   snakemake --cores 8 --config device=cuda       on a GPU, one job at a time; with --resources gpu=4: on four GPUs
#   snakemake --profile profiles/slurm quick       on a cluster

from fedflat.workflow import RULES


include: RULES


rule all:
    input: FLOW.pages
