"""How much memory there is, and the part of it that client states may take."""

import os

import torch

from fedflat.bench.host.memory import Budgets, available_memory

CPU = torch.device("cpu")


def test_the_default_budget_is_a_share_of_what_is_there():
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < available_memory() <= total
    assert 0 < Budgets.share(CPU).host < 0.3 * total


def test_the_memory_of_a_slurm_job_is_a_limit(monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "3")
    assert available_memory() == 3 * 2**20
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")  # as with sbatch --mem=0: all of the machine's memory
    assert available_memory() > 3 * 2**20
