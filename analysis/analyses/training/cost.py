"""Time, memory, traffic and gradients of a run."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.base import Analysis
from fedflat.analysis.measures.cost import per_round
from fedflat.bench.metrics.quantity import Quantity

_MEMORY = {"process_peak_memory_mib": "peak_memory_mib", "peak_gpu_memory_mib": "peak_gpu_memory_mib"}


class RunCost(Analysis):
    """Costs of a round and of the whole run (FedGF's Table 3, FedLESAM's Tables 7 and 8)."""

    name: ClassVar[str] = "cost"
    columns: ClassVar[tuple[str, ...]] = ("metric", "value")
    quantities: ClassVar[Mapping[str, Quantity]] = {
        "downloads_per_round": Quantity("models received per round", "lower"),
        "uploads_per_round": Quantity("models sent per round", "lower"),
        "transmissions_per_round": Quantity("models sent and received per round", "lower"),
        "gigabytes_per_round": Quantity("traffic per round", "lower", "GB"),
        "gigabytes": Quantity("traffic", "lower", "GB"),
        "gradients_per_step": Quantity("gradients per local step", "lower"),
        "client_state": Quantity("models stored by a client", "lower"),
        "client_storage": Quantity("models stored by a client, and the model itself", "lower"),
        "client_models": Quantity("models stored and received by a client", "lower"),
        "server_state": Quantity("models stored by the server", "lower"),
        "train_seconds_per_round": Quantity("training per round", "lower", "s"),
        "evaluation_seconds": Quantity("evaluation", "lower", "s"),
        "seconds_per_round": Quantity("training and evaluation per round", "lower", "s"),
        "peak_memory_mib": Quantity("largest memory", "lower", "MiB"),
        "peak_gpu_memory_mib": Quantity("largest GPU memory", "lower", "MiB"),
    }
    of_diverged: ClassVar[bool] = True
    of_final_model: ClassVar[bool] = False

    def of_run(self, run: AnalysedRun) -> pd.DataFrame:
        """One row per quantity; peak memory is that of the process, which may have trained other seeds too."""
        directory = run.directory
        provenance = directory.provenance
        costs = per_round(directory.metrics(), directory.times(), run.w.numel())
        memory = {name: float(provenance[key]) for key, name in _MEMORY.items() if provenance.get(key) is not None}
        table = pd.DataFrame({**costs, **memory}.items(), columns=["metric", "value"])
        end = ", in the last of which it diverged" if directory.diverged else ""
        over = f"over {len(directory.times())} rounds{end}"
        measured = (
            f"{over}, on {provenance.get('device')}, other load included; seeds that are trained together share their "
            "time equally"
        )
        return table.assign(
            definition=table["metric"].str.contains("seconds|memory").map({True: measured, False: over})
        )
