"""The papers' claims: they fit the experiments, and the papers' printed numbers decide them as their files say."""

import pytest

from analysis.claims.evidence import Printed
from analysis.claims.schema import claims_of, papers_with_claims
from analysis.published.numbers import papers
from bench.experiments.experiment import load_experiment


def test_every_paper_has_claims():
    assert papers_with_claims() == papers()


@pytest.mark.parametrize("paper", papers_with_claims())
def test_claims_are_about_cells_of_the_papers_experiment(paper):
    experiment = load_experiment(paper)
    for claim in claims_of(paper).claims:
        statement = claim.statement(list(experiment.settings))
        assert statement is not None, f"{claim.id} selects no setting"
        missing = [cell.path for cell in statement.cells if not experiment.has_cell(cell)]
        assert not missing, claim.id


@pytest.mark.parametrize("paper", papers_with_claims())
def test_contradicted_claims_are_those_that_the_printed_numbers_refute(paper):
    """An independent check of claims and numbers, which were transcribed from different places by different people."""
    file, printed = claims_of(paper), Printed(paper)
    refuted = {claim.id for claim in file.claims if (found := printed.finding(claim)) and found.outcome == "fails"}
    assert refuted == set(file.contradicted)
