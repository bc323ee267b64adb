"""The answer in words: what the screening found, whether the best composition beats the published methods."""

import math

from fedflat.analysis.comparison.report.words import counts, too_few_seeds
from fedflat.analysis.comparison.report_table import number
from fedflat.analysis.comparison.statistics.verdicts import BETTER, NONE, UNCLEAR, WORSE
from studies.compositions.evaluation import CompositionResults, ranked
from studies.compositions.triples import all_triples, compositions, published

_VERDICTS = {
    BETTER: "The composition is better.",
    UNCLEAR: "The tests cannot tell which one is better.",
    WORSE: "The composition is worse.",
    NONE: "",
}


def answer(evaluation: CompositionResults) -> list[str]:
    """The sentences of the answer, as far as it is known."""
    return [*_of_screening(evaluation), *_of_runs(evaluation), *_agreement(evaluation), *_remaining(evaluation)]


def _of_screening(evaluation: CompositionResults) -> list[str]:
    rows, budget = ranked(evaluation.screening), evaluation.screening.budget
    new, old = rows[rows["published"] == ""], rows[rows["published"] != ""]
    legal, known = compositions(), published()
    sentences = [
        f"Of {len(all_triples())} triples of perturbation, correction and server, {len(legal)} are legal and "
        f"different; papers have published {sum(triple in known for triple in legal)} of these.",
        f"Screened: {len(rows)} triples, of which {int(rows['score'].isna().sum())} failed. Budget of each: "
        f"{_amount(budget['trials'], 'trial')}, {_amount(budget['rounds'], 'round')}, one seed, one setting.",
    ]
    if old["score"].notna().any():
        first = old.iloc[0]
        sentences.append(
            f"{int((new['score'] > first['score']).sum())} of the {len(new)} unpublished triples scored higher than "
            f"the best published one, {first['published']} ({first['score']:.1f} %)."
        )
    return sentences


def _of_runs(evaluation: CompositionResults) -> list[str]:
    best, rival = evaluation.best, evaluation.best_published
    if best is None or rival is None or evaluation.composed is None or evaluation.published is None:
        return []
    means = evaluation.composed.means[best], evaluation.published.means[rival]
    chosen = (
        f"Best validation accuracy after tuning: {evaluation.composed.titles[best]} ({means[0]:.2f} %; "
        f"{_amount(len(evaluation.composed.scores), 'composition')}), and {evaluation.published.titles[rival]} "
        f"({means[1]:.2f} %; {_amount(len(evaluation.published.scores), 'published method')})."
    )
    if best not in evaluation.comparisons:
        return [chosen]
    comparison = evaluation.comparisons[best]
    found = comparison.verdicts
    against = found[found["rival"] == rival]
    sentences = [chosen, too_few_seeds(comparison.scores)]
    if comparison.scores.is_judged:
        does = "beats" if (found["verdict"] == BETTER).all() else "is not shown to beat"
        sentences[1] = (
            f"On the seeds of the grid, {comparison.titles[best]} {does} all {_amount(len(found), 'published method')} "
            f"of the comparison: it is {counts(found['verdict'])}."
        )
    sentences += [f"{note[0].upper()}{note[1:]}." for note in comparison.notes]
    for row in against.to_dict("records"):
        low, high = (number(row[f"interval_{end}"], "+.2f") for end in ("low", "high"))
        sentences.append(
            f"Test accuracy minus that of {comparison.titles[rival]}: {number(row['difference'], '+.2f')} points "
            f"(95 % interval {low} to {high}; corrected p {number(row['p_corrected'], '.4f')}). "
            f"{_VERDICTS[row['verdict']]}".strip()
        )
    return sentences


def _agreement(evaluation: CompositionResults) -> list[str]:
    tau, methods = evaluation.agreement
    if math.isnan(tau):
        return []
    return [
        f"The screening orders {methods} methods as their tuned validation scores in the same setting do with "
        f"Kendall's τ = {number(tau, '.2f')}."
    ]


def _amount(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _remaining(evaluation: CompositionResults) -> list[str]:
    """What is not stored yet."""
    texts = {
        f"Not screened: {len(evaluation.missing)} triples, such as "
        f"{evaluation.missing[0].label if evaluation.missing else ''}.": bool(evaluation.missing),
        "Not stored yet: the search of the best compositions.": evaluation.composed is None,
        "Not stored yet: the search of the published methods.": evaluation.published is None,
        "Not stored yet: runs with the tuned values.": evaluation.composed is not None
        and evaluation.published is not None
        and not evaluation.comparisons,
    }
    return [text for text, is_so in texts.items() if is_so]
