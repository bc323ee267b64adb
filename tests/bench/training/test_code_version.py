"""The commit of the code that trains, and whether it differs from the commit, through the links of the package."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.tiers import thorough

CODE = "from fedflat.bench.training.code_version import git_commit; print(*git_commit().values())"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def found(folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository")
@thorough
def test_an_edit_behind_a_link_is_seen(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--shared", str(ROOT), str(clone))
    commit = git(clone, "rev-parse", "HEAD")
    assert found(clone) == [commit, "False"]
    (clone / "docs" / "new.md").write_text("x", encoding="utf-8")
    assert found(clone) == [commit, "False"], "only bench decides the numbers of a run"
    with (clone / "bench" / "engine" / "federation.py").open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    assert found(clone) == [commit, "True"]
    foreign = tmp_path / "foreign"  # a repository that contains an installed package
    (foreign / "lib").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(foreign))
    (clone / ".git").rename(tmp_path / "away")
    clone.rename(foreign / "lib" / "clone")
    assert found(foreign / "lib" / "clone") == ["None", "None"]
