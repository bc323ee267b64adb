"""Numbers that YAML 1.1 reads as other ones than their digits say are refused wherever YAML is read."""

import pytest
import yaml

from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.input.errors import UserError
from fedflat.bench.input.strict_yaml import OddNumberError, load_yaml
from tests.commands import refused, run

ODD = {"010": 8, "-010": -8, "+0017": 15, "00": 0, "0b11": 3, "1_0": 10, "1:30": 90, "1:30.5": 90.5, "1_0.5": 10.5}
PLAIN = {
    "10": 10, "-10": -10, "+10": 10, "0": 0, "0x1F": 31, "1.5": 1.5, ".5": 0.5, "5.": 5.0, "1.0e-3": 0.001,
    "010.5": 10.5, "-.inf": float("-inf"), "'010'": "010", "'1:30'": "1:30", "1:30:x": "1:30:x", "0o10": "0o10",
    "true": True, "a_1": "a_1",
}  # fmt: skip


@pytest.mark.parametrize(("text", "number"), ODD.items())
def test_odd_numbers_are_refused(text, number):
    """Also as keys, and in lists and mappings."""
    assert yaml.safe_load(text) == number, "what PyYAML makes of it"
    for content in (
        f"rounds: {text}",
        f"[{text}]",
        f"{{a: {{{text}: x}}}}",
        f"!!int '{text}'" if "." not in text else text,
    ):
        with pytest.raises(OddNumberError, match=r"in line 1 is -?[0-9.]+ in YAML \(allowed: digits without"):
            load_yaml(content)


@pytest.mark.parametrize(("text", "value"), PLAIN.items())
def test_other_values_are_read(text, value):
    assert load_yaml(text) == value


def test_every_file_is_read_so(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nextends: quick\ntraining: {rounds: 1:30}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"'.*mine.yaml' is not YAML: '1:30' in line 3 is 90 in YAML"):
        load_experiment(str(file))


@pytest.mark.parametrize("text", ODD)
def test_the_option_set(text):
    line = refused("summary", "quick", "--set", f"training.rounds={text}")
    assert f"training.rounds: '{text}' is not a YAML value ('{text}' in line 1 is" in line


@pytest.mark.parametrize(
    "given", ["rounds=010", "rounds=1_0", "rounds=1:30", "until=1_0.5", "seeds=[010]", "seeds=[0, 1_0]"]
)
def test_the_option_config_of_snakemake(given, tmp_path):
    """Snakemake would read 1_0 as 10, and 010 as 10, before the project gets the value."""
    done = run(
        ["snakemake", "--cores", "1", "--dry-run", "--config", given, f"results={tmp_path}/results"], cwd=tmp_path
    )
    assert done.returncode == 2, done
    [line] = [line for line in done.stderr.splitlines() if line.startswith("fedflat: ")]
    assert line.startswith(f"fedflat: --config {given.partition('=')[0]}: '")
    assert "in YAML (allowed: digits without" in line


def test_a_configuration_file_of_snakemake(tmp_path):
    (tmp_path / "mine.yaml").write_text("rounds: 010\n", encoding="utf-8")
    words = ["snakemake", "--cores", "1", "--dry-run", "--configfile", "mine.yaml", "--config", "results=results"]
    done = run(words, cwd=tmp_path)
    assert done.returncode == 2, done
    assert "mine.yaml': '010' in line 1 is 8 in YAML" in done.stderr
