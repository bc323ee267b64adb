"""What a table says of its numbers, and which it refuses: definitions, code, options, runs that were compared with."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.provenance import name_value_pairs
from fedflat.analysis.layouts.captions import other_training_settings, smoke_scale, tuned_values
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.measures.forward_passes import DIFFERENCES
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.tables.layout import load_table
from fedflat.analysis.tables.table import Table, fill
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import CONFIGURATIONS, CONFIGURED, HARD, read_rows, tidy_in, words, write, write_rows
from tests.analysis.tables.tables_by_hand import ACCURACY, TARGET, layout, reaching
from tests.documents import PAGES


def test_caption_states_protocol_seeds_and_marks(tidy: Tidy) -> None:
    assert words(fill("accuracy", layout(), tidy).caption) == (
        "Accuracy. Test images. Values: after the last round (round 4). Methods with training settings of their own: "
        "FedDyn (lr_decay 0.9995); FedGF (lr 0.03). Mean ± sample standard "
        "deviation over 2 to 3 seeds. Bold: best mean of a column; underlined: second best."
    )


PAPER = "fedsam_caldarola"
OVERRIDES = "Methods with training settings of their own"


def test_augmentations_are_reported_in_words() -> None:
    methods = ["fedavg", "fedavg+mixup", "fedavg+cutout"]
    assert list(other_training_settings(load_experiment(PAPER), methods)) == [
        f"{OVERRIDES}: FedAvg + Mixup (augmentation standard + mixup); "
        "FedAvg + Cutout (augmentation standard + cutout size 8)."
    ]
    assert list(other_training_settings(load_experiment(PAPER, {"scale": "smoke"}), methods)) == [
        f"{OVERRIDES}: FedAvg + Mixup (augmentation mixup); FedAvg + Cutout (augmentation cutout)."
    ]


def test_what_smoke_scale_drops_is_not_reported(tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    own = "methods: {fedavg: {training: {augmentation: [crop, flip], precision: bf16}}, fedsam: {}}\n"
    file.write_text(f"name: mine\nextends: quick\n{own}", encoding="utf-8")
    [sentence] = other_training_settings(load_experiment(str(file)), ["fedavg"])
    assert sentence == f"{OVERRIDES}: FedAvg (augmentation crop + flip, precision bf16)."
    assert not list(other_training_settings(load_experiment(str(file), {"scale": "smoke"}), ["fedavg"]))


def test_swept_values_are_not_repeated_for_each_value(tmp_path: Path) -> None:
    file = tmp_path / "experiments.yaml"
    sam = "{hyperparameters: {rho: [0.05, 0.1]}, training: {lr: [0.1, 0.2], clip: 3}}"
    own = f"methods: {{fedavg: {{training: {{lr: [0.1, 0.2]}}}}, fedsam: {sam}}}\n"
    file.write_text(f"name: mine\nextends: quick\n{own}", encoding="utf-8")
    experiment = load_experiment(str(file))
    assert list(other_training_settings(experiment, list(experiment.methods))) == [f"{OVERRIDES}: FedSAM (clip 3)."]


def test_captions_at_smoke_scale_name_the_data_that_were_trained(tmp_path: Path) -> None:
    smoke = RequestedExperiment("quick", tmp_path, {"scale": "smoke"}).tidy
    caption = words(fill("t", layout(columns=[ACCURACY]), smoke).caption)
    assert "digits replace the data" in caption
    assert OVERRIDES in caption


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The small network has BatchNorm, whose statistics are averaged", [("fedsam_caldarola", "8")]),
        ("Heterogeneous clients have scenes of one domain each", [("fedsam_caldarola", "8")]),
        ("There are at most 20 clients.", [("fedsam_caldarola", "8")]),
        ("There are at most 200 clients.", [("fedsam_caldarola", "7")]),
        ("the local rate is at least 0.1.", [("fedlesam", "3")]),
        ("Splits by groups are replaced by Dirichlet splits.", [("fedsam_caldarola", "7")]),
        ("Digits in several styles", [("fedlesam", "3")]),
    ],
)
def test_captions_at_smoke_scale_say_what_is_replaced(sentence, expected) -> None:
    tables = [("fedlesam", "2"), ("fedlesam", "3"), ("fedsam_caldarola", "7"), ("fedsam_caldarola", "8")]
    said = {}
    for scale in ("smoke", "paper"):
        for paper, name in tables:
            experiment = load_experiment(paper, {"scale": scale})
            said[scale, paper, name] = sentence in smoke_scale(
                experiment, load_table(paper, name).cells(experiment), shortens=False
            )
    assert [key for key, value in said.items() if value] == [("smoke", *key) for key in expected]


def test_runs_of_other_code_are_reported(tidy: Tidy) -> None:
    assert "other code" not in words(fill("accuracy", layout(), tidy).caption)
    path = tidy.path("metrics", CellAddress(HARD, "fedsam"))
    frame = read_rows(path)
    frame.loc[frame["seed"] == 1, "code"] = "0123456789abcdef"
    write_rows(path, frame)
    assert "1 of 11 runs (FedSAM) were computed by another version of the code." in words(
        fill("accuracy", layout(), tidy).caption
    )


LPF = {**ACCURACY, "metric": "lpf"}


def lpf(tidy: Tidy, **changes: object) -> Table:
    """FedAvg's and FedSAM's LPF over three seeds, FedSAM's file changed by hand."""
    rows = pd.DataFrame({"seed": range(3), "metric": "lpf", "value": 0.2, "definition": "5 draws"})
    for method in ("fedavg", "fedsam"):
        path = write(tidy.results, CellAddress(HARD, method), "flatness", rows)
    write_rows(path, read_rows(path).assign(**changes))
    return fill("t", layout(columns=[LPF], methods=["fedavg", "fedsam"]), tidy)


def test_captions_say_what_was_computed_and_by_which_code(tidy: Tidy) -> None:
    assert "Low-pass-filter loss LPF: 5 draws." in words(lpf(tidy).caption)
    assert "LPF: 5 or 7 draws." in words(lpf(tidy, definition="7 draws").caption)
    several = words(lpf(tidy, definition=["6 draws", "7 draws", "8 draws"]).caption)
    assert "LPF: 5, 6, 7 or 8 draws." in several
    assert "other code" not in several
    assert "3 of 6 results (FedSAM) of flatness were computed by another version of the code." in words(
        lpf(tidy, code="0123").caption
    )


def test_captions_state_the_largest_difference_of_bf16_from_fp32(tidy: Tidy) -> None:
    """Over all runs: here of FedSAM's three seeds; FedAvg's file has no such columns."""
    assert "bf16" not in words(lpf(tidy).caption)
    stated = dict(zip(DIFFERENCES, (5, [0.001, 0.00213, 0.002], [0.004, 0.0012, 0.0031], [0, 0.2, 0.1]), strict=True))
    assert (
        "flatness was computed in bf16: at 5 points of each run it differs from fp32 by at most 0.0021 in the loss "
        "(relatively 0.4 %) and 0.2 percentage points in the error."
    ) in words(lpf(tidy, **stated).caption)


def test_definitions_without_a_common_part_are_in_the_file(tidy: Tidy) -> None:
    unlike = ["one loss of all images", "a second mean over ten draws", "the third, by no such rule"]
    assert "LPF: 4 definitions, see the column definition of the files flatness.csv." in words(
        lpf(tidy, definition=unlike).caption
    )


def test_captions_say_which_eigenvalues_are_not_exact(tidy: Tidy) -> None:
    for method, flags in (("fedavg", (1, 1, 1)), ("fedsam", (0, 1, 0))):
        rows = [(seed, "lambda_max", 5.0) for seed in range(3)]
        rows += [(seed, "lambda_converged", flag) for seed, flag in enumerate(flags)]
        write(
            tidy.results, CellAddress(HARD, method), "hessian", pd.DataFrame(rows, columns=["seed", "metric", "value"])
        )
    shown = layout(columns=[{**ACCURACY, "metric": "lambda_max"}], methods=["fedavg", "fedsam"])
    assert (
        "2 of 6 results: Lanczos stopped at its limit of steps, so its eigenvalues may be off by more than 0.1 %."
        in words(fill("t", shown, tidy).caption)
    )
    only = layout(columns=[{**ACCURACY, "metric": "lambda_max"}], methods=["fedavg"])
    assert "may be off" not in words(fill("t", only, tidy).caption)


def test_answers_to_other_questions_are_refused(tidy: Tidy) -> None:
    old = name_value_pairs(CONFIGURED["flatness"].model_copy(update={"draws": 7}).options().items())
    with pytest.raises(UserError, match=r"computed with other options \(draws=7 there, draws=50 here\) than .* again"):
        lpf(tidy, options=old)
    same = name_value_pairs(reversed(CONFIGURED["flatness"].options().items()))
    assert lpf(tidy, options=same).entries[0][1][0].mean == pytest.approx(0.2), "in whatever order"


@pytest.mark.parametrize("identity", ["", "fedavg=0123456789abcdef"])
def test_answers_that_compare_with_other_runs_are_refused(tidy: Tidy, identity: str) -> None:
    convergence = parse_analysis("convergence", {"reference": "fedavg"})
    tidy = replace(tidy, analyses={**CONFIGURED, "convergence": convergence})
    path = write(tidy.results, CellAddress(HARD, "fedsam"), "convergence", reaching((200, 1), (400, 1), (300, 1)))
    own = [
        f"fedavg={CONFIGURATIONS[CellAddress(HARD, 'fedavg').path, seed].identity}"
        for seed in range(3)
        for _ in range(2)
    ]
    made = read_rows(path).assign(options=name_value_pairs(convergence.options().items()), compared_with=own)
    write_rows(path, made)
    shown = layout(columns=[TARGET], methods=["fedsam"])
    assert fill("t", shown, tidy).entries[0][0][0].mean == 300
    write_rows(path, made.assign(compared_with=identity))
    with pytest.raises(UserError, match="compares with other runs of fedavg than experiment quick has now"):
        fill("t", shown, tidy)


@pytest.mark.parametrize("identity", ["3774932184096623", "00000000000000e5"])
def test_a_hash_that_looks_like_a_number_is_text(identity: str, tidy: Tidy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunConfig, "identity", identity)
    path = tidy.path("metrics", CellAddress(HARD, "fedavg"))
    write_rows(path, read_rows(path).assign(identity=identity, code=identity))
    table = fill("t", layout(methods=["fedavg"]), tidy_in(tidy.results, tidy.experiment))
    assert table.entries[0][0][0].mean == 82
    assert "3 of 3 runs were computed by another version of the code." in words(table.caption)


def test_what_was_tuned_is_said(tmp_path: Path) -> None:
    extract = next(block.code for block in PAGES["docs/tuning.md"].blocks("yaml") if block.file == "mine/extract.yaml")
    file = tmp_path / "extract.yaml"
    file.write_text(extract + "  fedavg:\n", encoding="utf-8")
    experiment = load_experiment(str(file))
    assert list(tuned_values(experiment, ["fedsam", "fedavg"])) == [
        "Tuned with 8 trials for each method and setting: lr, server_lr, rho; score: validation accuracy after the "
        "last round, on 20 % of the clients' training images.",
        "Not tuned: FedAvg.",
        "Not tuned in some settings: FedSAM.",
    ]
    assert list(tuned_values(load_experiment("quick"), ["fedsam"])) == []
