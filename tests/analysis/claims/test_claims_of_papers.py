"""The papers' claims: they fit the experiments, and the papers' printed numbers decide them as their files say."""

from functools import cache

import pytest

from fedflat.analysis.claims.schema import Claim, PaperClaims, claims_of, papers_with_claims
from fedflat.analysis.claims.statements import Change, Level, MethodComparison, Rank
from fedflat.analysis.published.numbers import papers
from fedflat.bench.files.text_table import markdown_line
from tests.analysis.papers import printed, requested
from tests.places import ROOT


@cache
def findings(paper):
    """The outcome of each claim by the printed numbers; None if none is printed."""
    found = {claim.id: printed(paper).finding(claim) for claim in claims_of(paper).claims}
    return {name: finding and finding.outcome for name, finding in found.items()}


def test_every_paper_has_claims():
    assert papers_with_claims() == papers()


@pytest.mark.parametrize("paper", papers_with_claims())
def test_claims_are_about_cells_of_the_papers_experiment(paper):
    experiment = requested(paper).experiment
    for claim in claims_of(paper).claims:
        statement = claim.statement(list(experiment.settings))
        assert statement is not None, f"{claim.id} selects no setting"
        missing = [cell.path for cell in statement.cells if not experiment.has_cell(cell)]
        assert not missing, claim.id


@pytest.mark.parametrize("paper", papers_with_claims())
def test_contradicted_claims_are_those_that_the_printed_numbers_refute(paper):
    """An independent check of claims and numbers, which were transcribed from different places by different people."""
    file, found = claims_of(paper), findings(paper)
    assert {name for name, outcome in found.items() if outcome == "fails"} == set(file.contradicted)


def test_the_docs_count_the_claims_of_each_paper():
    lines = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").splitlines()
    for paper in papers_with_claims():
        file, outcomes = claims_of(paper), list(findings(paper).values())
        counts = [outcomes.count(outcome) for outcome in ("holds", "fails", "undecided", None)]
        assert markdown_line(map(str, [paper, len(file.claims), *counts, len(file.not_decided)])) in lines


def test_the_docs_explain_every_key_of_a_claim():
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    models = (Claim, MethodComparison, Rank, Change, Level, PaperClaims)
    keys = {key for model in models for key in model.model_fields} - {"claims", "not_decided"}
    assert not {key for key in keys if f"`{key}`" not in text and f"`{key}:" not in text}
