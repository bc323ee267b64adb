"""The workflows in .github run targets of the Makefile, on the versions of Python that the package names."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.places import ROOT

WORKFLOWS = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in (ROOT / ".github/workflows").glob("*.yml")
}
TARGET = re.compile(r"\$\{\{ matrix\.target \}\}")


PLAN = ("-n", "-o", ".venv/.installed")
"""Options with which make prints the steps, in a tree with or without an environment."""


def values(matrix: dict[str, Any], key: str) -> list[str]:
    return [*matrix.get(key, ()), *(entry[key] for entry in matrix.get("include", ()) if key in entry)]


def jobs() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            yield job, job.get("strategy", {}).get("matrix", {})


def commands() -> Iterator[str]:
    """The commands of all workflows, one for each value of a matrix that they contain."""
    for job, matrix in jobs():
        for step in job["steps"]:
            if "run" in step:
                env = {name: TARGET.fullmatch(value) for name, value in step.get("env", {}).items()}
                targets = values(matrix, "target") if any(env.values()) else [""]
                yield from (step["run"].replace('"$TARGET"', target) for target in targets)


@pytest.mark.parametrize("command", dict.fromkeys(commands()))
def test_a_command_of_a_workflow_is_a_target(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "make"
    assert words
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_checks_are_run() -> None:
    found = {shlex.split(command)[1] for command in commands()}
    assert found == {"lint", "docs", "test", "test-all", "check-version", "check-wheel"}


def test_the_tests_run_on_all_versions_that_the_package_names() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    named = [found[1] for one in classifiers if (found := re.fullmatch(r".*:: (3\.\d+)", one))]
    assert WORKFLOWS["tests"]["jobs"]["make"]["strategy"]["matrix"]["python"] == named
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {', '.join(named[:-1])} or {named[-1]}" in readme
    used = {version for _, matrix in jobs() for version in values(matrix, "python")}
    assert used <= set(named)


def test_the_hooks_before_a_commit_are_steps_of_make_lint() -> None:
    """But for options, such as --force-exclude, and the files, which pre-commit appends."""
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    linted = subprocess.run(["make", *PLAN, "lint"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for hook in repo["hooks"]:
        entry = re.sub(r" --(silent|force-exclude)", "", hook["entry"])
        done = subprocess.run(
            ["make", *PLAN, *entry.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        steps = done.stdout if entry.startswith("make ") else entry
        assert steps.strip()
        assert all(step in linted for step in steps.splitlines())


def test_the_form_for_a_problem_asks_for_the_versions() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/problem.yml").read_text(encoding="utf-8"))
    [field] = [part for part in form["body"] if part["id"] == "versions"]
    assert "`fedflat versions`" in field["attributes"]["description"]
    assert field["validations"]["required"] is True
