"""Jobs of Snakemake, as its rules see them."""

from types import SimpleNamespace

from fedflat.analysis.planning.workflow import Workflow

FEDSAM = "digits/dirichlet-0.1/4-of-20/fedsam"


def wildcards(cell: str = FEDSAM, **others: str) -> SimpleNamespace:
    """Those of a cell of mini, as Snakemake passes them to a rule's functions."""
    names = ("dataset", "partition", "participation", "method")
    return SimpleNamespace(experiment="mini", **dict(zip(names, cell.split("/"), strict=True)), **others)


def jobs_of(flow: Workflow, name: str, *rules: str) -> list[tuple[str, SimpleNamespace]]:
    jobs = []
    for cell in flow.experiments[name].experiment.addresses:
        w = wildcards(cell.path)
        w.experiment = name
        jobs += [(rule, w) for rule in rules]
    return jobs
