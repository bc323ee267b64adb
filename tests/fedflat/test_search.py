"""`fedflat search`: from a protocol to runs with winning values, and one line for each mistake."""

from pathlib import Path

import pytest

from fedflat.bench.data.root import ENVIRONMENT
from tests.bench.tuning.tiny_protocol import PROTOCOL, write
from tests.commands import fedflat


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "data"))


def test_from_the_rounds_to_the_runs_of_a_pair(tmp_path: Path) -> None:
    common = ("--results", tmp_path / "results")
    rounds = {**PROTOCOL["rounds"], "chosen": {"main": None}}
    file = write(tmp_path / "grid", rounds=rounds)
    done = fedflat("search", file, "rounds", *common)
    assert done.returncode == 0, done
    assert "main: 2 rounds (each is fitted); set rounds.chosen.main and training.rounds to it" in done.stdout
    refused = fedflat("search", file, "main/fedsam/1000", *common)
    assert refused.returncode == 2
    assert refused.stderr.startswith("fedflat: rounds.chosen.main is null in the protocol")
    write(tmp_path / "grid")
    stopped = fedflat("search", file, "main/fedsam/1000", "--hours", "0", *common)
    assert "4 of 4 left (the time is over), the first is main/fedavg/1000" in stopped.stdout
    done = fedflat("search", file, "main/fedsam/1000", *common)
    assert done.returncode == 0, done
    assert "main/fedsam/1000: confirm: 2 trials; the best of 12 is trial" in done.stdout
    assert "left" not in done.stdout
    assert (tmp_path / "results/experiments/tiny_t1000/mnist1d-60/iid/2-of-4/fedsam/runs.csv").is_file()
    again = fedflat("search", file, "main/fedsam/1000", *common)
    assert "trial" not in again.stdout, "nothing is trained again"
    status = fedflat("search", file, "--status", *common)
    assert "main.ten: 4 of 12 done" in status.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench1d"], "unknown protocol 'bench1d' (allowed: flat1d, flat_cifar)"),
        (["nothing.yaml"], "nothing.yaml"),
        (["flat1d", "main.tne"], "did you mean 'main.ten'"),
        (["flat1d", "main/fedsam"], "unit 'main/fedsam' (allowed: SETTING/METHOD/SEED, such as main/fedavg/1000)"),
        (["flat1d", "mian/fedsam/1000"], "did you mean 'main'"),
        (["flat1d", "main/fedsma/1000"], "did you mean 'fedsam'"),
        (["flat1d", "main/fedsam/7"], "unknown tuning seed of 'main/fedsam/7' '7'"),
        (["flat1d", "rounds/min"], "did you mean 'main'"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    done = fedflat("search", *words, "--results", tmp_path / "results")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()
