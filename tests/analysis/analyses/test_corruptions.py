"""Built-in corruptions against their definitions, and the published ones against their files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from fedflat.analysis.analyses import parse_analysis
from fedflat.analysis.analyses.analysed_run import AnalysedRun
from fedflat.analysis.analyses.run_analysis import run_analysis
from fedflat.analysis.measures import corruptions
from fedflat.analysis.measures.corruptions import CORRUPTIONS, SEVERITIES, Corrupted
from fedflat.bench.data.dataset import DeviceData
from fedflat.bench.data.sources.cifar_c import CORRUPTIONS as CIFAR_C
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from tests.bench.data.published_copies import TEST, write_copy
from tests.places import MINI
from tests.problems import stored as run_of_store

CPU = torch.device("cpu")
DRAWS = np.random.default_rng(0)
X = torch.from_numpy(np.random.default_rng(1).random((6, 3, 12, 10), dtype=np.float32))


def stored(images: torch.Tensor, scale: float = 16) -> DeviceData:
    """Images as a data set stores them, not normalised."""
    return DeviceData((images * scale).to(torch.uint8), torch.arange(len(images)), torch.zeros(1), torch.tensor(1.0))


def test_no_name_is_one_of_cifar_c() -> None:
    assert not set(CORRUPTIONS) & set(CIFAR_C)
    assert {len(kind.strengths) for kind in CORRUPTIONS.values()} == {SEVERITIES}


def test_without_strength_images_stay() -> None:
    for corrupt, none in (
        (corruptions.additive_noise, 0.0),
        (corruptions.impulses, 0.0),
        (corruptions.low_contrast, 1.0),
        (corruptions.lighter, 0.0),
    ):
        torch.testing.assert_close(corrupt(X, none, DRAWS), X, rtol=0, atol=1e-6)
    torch.testing.assert_close(corruptions.soft_focus(X, 1e-3, DRAWS), X, rtol=0, atol=1e-6)


def test_noise_has_its_deviation() -> None:
    noise = corruptions.additive_noise(torch.zeros(40, 1, 50, 50), 0.3, np.random.default_rng(2))
    assert float(noise.std()) == pytest.approx(0.3, rel=4 / np.sqrt(2 * noise.numel()))
    assert abs(float(noise.mean())) < 4 * 0.3 / np.sqrt(noise.numel())


def test_impulses_are_black_and_white_alike() -> None:
    hit = corruptions.impulses(torch.full((40, 1, 50, 50), 0.5), 0.2, np.random.default_rng(2))
    error = 4 * np.sqrt(0.1 * 0.9 / hit.numel())
    for value, share in ((0.0, 0.1), (1.0, 0.1), (0.5, 0.8)):
        assert float((hit == value).double().mean()) == pytest.approx(share, abs=2 * error)


@pytest.mark.parametrize("width", [0.05, 0.1, 0.2])
def test_blur_is_scipys(width: float) -> None:
    """Up to where the kernel is cut, on both at three deviations, rounded up here."""
    deviation = width * X.shape[-2]
    radius = int(np.ceil(3 * deviation))
    expected = gaussian_filter(X.double().numpy(), sigma=deviation, axes=(2, 3), mode="mirror", radius=radius)
    np.testing.assert_allclose(corruptions.soft_focus(X, width, DRAWS).numpy(), expected, atol=1e-6)


def test_contrast_keeps_the_mean_and_shrinks_the_rest() -> None:
    low = corruptions.low_contrast(X, 0.25, DRAWS)
    torch.testing.assert_close(low.mean((1, 2, 3)), X.mean((1, 2, 3)))
    torch.testing.assert_close(low.std((1, 2, 3)), 0.25 * X.std((1, 2, 3)))


@given(side=st.floats(0.01, 0.83), seed=st.integers(0, 99))
def test_occlusion_is_one_black_square(side: float, seed: int) -> None:
    """The smaller side is 10 of 12: a square of 0.83 × 12 still fits."""
    length = max(1, round(12 * side))
    covered = corruptions.occlusion(torch.ones(3, 2, 12, 10), side, np.random.default_rng(seed)) == 0
    assert (covered.sum((2, 3)) == length**2).all()
    assert (covered.any(3).sum(2) == length).all()
    assert (covered.any(2).sum(2) == length).all()


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("severity", [1, 5])
def test_every_pass_and_batch_size_gives_the_same_images(name: str, severity: int) -> None:
    data = stored(X)
    passes = [torch.cat([x for x, _ in Corrupted(data, 16, size, name, severity)]) for size in (6, 6, 4, 1)]
    for other in passes[1:]:
        torch.testing.assert_close(other, passes[0], rtol=0, atol=1e-5)
    assert float(passes[0].min()) >= 0
    assert float(passes[0].max()) <= 16
    labels = torch.cat([y for _, y in Corrupted(data, 16, 4, name, severity)])
    assert labels.tolist() == list(range(6))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severities_corrupt_more_and_more(name: str) -> None:
    clean = stored(X)
    distances = [
        float(torch.cat([x for x, _ in Corrupted(clean, 16, 6, name, s)]).sub(clean.images).square().mean())
        for s in range(1, SEVERITIES + 1)
    ]
    assert distances == sorted(distances)
    assert distances[0] > 0


def test_images_are_normalised_after_their_corruption() -> None:
    data = DeviceData(
        torch.full((1, 1, 4, 4), 8, dtype=torch.uint8), torch.tensor([0]), torch.tensor(4.0), torch.tensor(0.5)
    )
    ((x, _),) = Corrupted(data, 16, 1, "lighter", 2)  # 8 / 16 + 0.2 is 11.2 / 16
    torch.testing.assert_close(x, torch.full((1, 1, 4, 4), (11.2 - 4) * 0.5))


def run_on(dataset: dict[str, object], out: Path, model: str = "cnn_gn") -> Path:
    changes: dict[str, object] = {
        "dataset": dataset, "model": model, "training.rounds": 1, "grid.seeds": [0],
        "grid.partition": [{"name": "iid", "clients": 4}], "grid.participation": [{"active": 2}],
        "evaluation.snapshot_every": None,
    }  # fmt: skip
    (cell,) = [c for path, c in load_experiment(MINI, changes).cells().items() if path.endswith("/fedavg")]
    train_cell("MINI", cell, out, CPU, str)
    return out


def analysed(folder: Path, **options: object) -> pd.DataFrame:
    run_analysis(parse_analysis("corruptions", options), folder, folder.parent / "x.csv", CPU, str)
    return pd.read_csv(folder.parent / "x.csv")


def test_runs_on_digits_are_tested_on_the_built_in_ones(tmp_path: Path) -> None:
    runs = run_on({"name": "digits"}, tmp_path / "runs")
    table = analysed(runs)
    assert set(table["suite"]) == {"built_in"}
    single, (mean,) = (table.loc[table["metric"] == m, "value"] for m in ("accuracy", "corrupted_accuracy"))
    assert len(single) == 1 + 6 * 5
    assert mean == pytest.approx(single[1:].mean())
    assert single[0] == pytest.approx(pd.read_csv(run_of_store(runs) / "metrics.csv")["test_accuracy"].iloc[-1])
    some = analysed(runs, corruptions=["occlusion"], severities=[2, 4])
    assert some["severity"].tolist()[:3] == [0, 2, 4]
    for options, message in (
        ({"suite": "cifar10_c"}, "suite = cifar10_c, but the run's data set is digits"),
        ({"corruptions": ["fog"]}, "unknown corruption of built_in 'fog'"),
        ({"severities": [6]}, "severities.0 = 6"),
    ):
        with pytest.raises(UserError, match=message):
            analysed(runs, **options)


def test_runs_on_cifar_are_tested_on_the_published_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny copy of the files: the accuracy is that on the images of that severity, normalised as the run's own."""
    root = tmp_path / "data"
    monkeypatch.setenv("FEDFLAT_DATA", str(root))
    write_copy("cifar10_c", root, monkeypatch)
    runs = run_on({"name": "cifar10"}, tmp_path / "runs")
    table = analysed(runs, corruptions=["fog", "snow"], severities=[1, 5])
    assert set(table["suite"]) == {"cifar10_c"}
    assert table["corruption"].tolist()[:5] == ["clean", "fog", "fog", "snow", "snow"]
    run = AnalysedRun(RunDirectory(run_of_store(runs)), CPU)
    images = np.load(root / "CIFAR-10-C" / "snow.npy")[4 * TEST :].transpose(0, 3, 1, 2)
    mean, std = (np.array(c)[:, None, None] for c in (run.setup.dataset.mean, run.setup.dataset.std))
    x = torch.from_numpy(((images / 255 - mean) / std).astype(np.float32))
    correct = run.setup.objective.logits(run.w, x).argmax(1).numpy() == np.arange(TEST) % 10
    assert table["value"][4] == pytest.approx(100 * correct.mean())
    assert set(analysed(runs, suite="built_in", severities=[1])["suite"]) == {"built_in"}
    (root / "CIFAR-10-C" / "frost.npy").unlink()
    with pytest.raises(UserError, match=r"data set cifar10_c: .*frost\.npy' is missing; put"):
        analysed(runs, corruptions=["frost"])


def test_corrupted_images_are_not_corrupted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFLAT_DATA", str(tmp_path / "data"))
    write_copy("cifar10_c", tmp_path / "data", monkeypatch)
    runs = run_on({"name": "cifar10_c", "corruption": "fog", "severity": 5}, tmp_path / "runs")
    with pytest.raises(UserError, match="cifar10_c-fog-5 are already corrupted"):
        analysed(runs)
