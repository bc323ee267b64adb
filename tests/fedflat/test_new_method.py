"""The template of a method: it passes the conformance suite, and `new-method` writes it."""

import re

import pytest

from fedflat.bench.code.trusted_code import trust
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods.user_file import recipe_from_file
from fedflat.conformance.suite import check_method
from fedflat.conformance.template import TEMPLATE, write_template
from tests.commands import fedflat, refused


@pytest.mark.parametrize("name", ["recipe", "costs", "perturbation", "none", "true"])
def test_the_template_runs_under_names_that_it_needs_itself(name, tmp_path):
    file = write_template(tmp_path / name)
    trust(file.read_bytes())
    made = recipe_from_file(file)
    assert made.build({"rho": 0.1}).perturbation.name == made.name == name


def test_the_template_passes_as_it_is_and_with_all_of_its_hooks(tmp_path):
    file = write_template(tmp_path / "mine" / "two_step")
    report = check_method(str(file))
    assert (report.findings, report.not_checked) == ([], {})
    text = re.sub(
        r"^    # ?((def |    |client_state|server_state).*)?$", r"    \1", file.read_text("utf-8"), flags=re.MULTILINE
    )
    assert "# def" not in text
    costs = "costs=Costs(gradients=2, download=2, upload=2, client_state=1, server_state=1)"
    file.write_text(re.sub(r"costs=Costs\(.*\)", costs, text), encoding="utf-8")
    report = check_method(str(file))
    assert (report.findings, report.not_checked) == ([], {})
    assert report.title == "Two step (two_step)"
    assert max(map(len, TEMPLATE.splitlines())) <= 120


def test_new_method_and_check_method(tmp_path):
    file = tmp_path / "mine" / "two_step.py"
    made = fedflat("new-method", tmp_path / "mine" / "two_step")
    assert made.returncode == 0, made.stderr
    assert f"fedflat check-method {file}" in made.stdout
    assert f"snakemake --cores 2 compare --config method={file} grid=bench1d\n" in made.stdout
    text = file.read_text(encoding="utf-8")
    assert "exists; choose another name" in refused("new-method", file)
    assert file.read_text(encoding="utf-8") == text
    for name in ("Two", "2step", "two-step"):
        with pytest.raises(UserError, match=rf"the name of a method '{name}' \(allowed: lower-case"):
            write_template(tmp_path / name)
    with pytest.raises(UserError, match="the name fedsam belongs to a method of the catalog"):
        write_template(tmp_path / "fedsam")
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]

    passed = fedflat("check-method", file, "fedsam", "--set", "rho=0.05")
    assert passed.returncode == 0, passed.stderr
    assert "Two step (two_step) with rho = 0.05" in passed.stdout
    file.write_text(text.replace("return self.rho", "return -self.rho"), encoding="utf-8")
    failed = fedflat("check-method", file)
    assert failed.returncode == 2
    assert failed.stderr == "fedflat: Two step (two_step): 1 finding\n"
    [line] = [line for line in failed.stdout.splitlines() if line.startswith(str(file))]
    assert re.match(rf"{re.escape(str(file))}:\d+: signs: expected ", line)
