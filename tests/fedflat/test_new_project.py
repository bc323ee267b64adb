"""`fedflat init`: what it writes, and that it overwrites nothing."""

import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from fedflat.analysis.planning.workflow import Workflow
from fedflat.bench.code.trusted_code import trust
from fedflat.bench.experiments.experiment import load_experiment
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.input.errors import UserError
from fedflat.new_project import project_files, write_project
from tests.commands import fedflat, refused
from tests.places import ROOT

FILES = [
    "README.md", "Snakefile", "config/config.yaml", "experiments.yaml", "mine.py", "profiles/default/config.yaml",
    "profiles/slurm/config.yaml",
]  # fmt: skip


def contents(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text("utf-8") for file in sorted(folder.rglob("*")) if file.is_file()
    }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new project, as the current folder."""
    write_project(tmp_path / "my {new} project")
    monkeypatch.chdir(tmp_path / "my {new} project")
    return Path.cwd()


def test_the_files_of_a_project(project):
    assert sorted(contents(project)) == FILES
    assert contents(project) == project_files()
    assert not any(path.is_symlink() for path in project.rglob("*"))


def test_its_configuration_requests_its_experiment(project):
    trust((project / "mine.py").read_bytes())
    config = yaml.safe_load((project / "config/config.yaml").read_text(encoding="utf-8"))
    flow = Workflow.of(config)
    assert [one.experiment.name for one in flow.requested] == ["mine"]
    assert flow.pages == [Path("results/reports/mine/index.html")]
    assert config == {**yaml.safe_load(project_files()["config/config.yaml"]), "experiments": ["experiments.yaml"]}


def test_its_runs_can_be_compared_with_the_stored_ones_of_quick(project):
    """Same settings, seeds and training as in `quick`; FedAvg's runs have the same identities."""
    trust((project / "mine.py").read_bytes())
    own, quick = load_experiment("experiments.yaml"), load_experiment("quick")
    settings = {cell.path.rpartition("/")[0] for cell in own.addresses}
    assert settings < {cell.path.rpartition("/")[0] for cell in quick.addresses}
    for setting in settings:
        assert own.cell(f"{setting}/fedavg").identity == quick.cell(f"{setting}/fedavg").identity


@pytest.mark.parametrize("name", FILES[1:])
def test_nothing_is_overwritten(name: str, tmp_path: Path):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).symlink_to("nowhere")
    with pytest.raises(UserError, match=f"^there already: {tmp_path / name}; nothing is overwritten"):
        write_project(tmp_path)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == [tmp_path / name]


def test_a_readme_stays(tmp_path: Path):
    """As in a folder that a new repository has begun."""
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    made = fedflat("init", tmp_path)
    assert made.returncode == 0, made.stderr
    assert f"{tmp_path / 'README.md'} is there already, and stays" in made.stdout.splitlines()
    assert contents(tmp_path) == {**project_files(), "README.md": "mine"}


def test_the_readme_names_the_plugin_that_the_extra_has(project):
    """An installed wheel is on no index, so the extra cannot be installed by its name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert f"`pip install {shlex.join(extras['slurm'])}`" in (project / "README.md").read_text(encoding="utf-8")


def test_a_folder_that_is_not_possible_is_one_line_and_nothing_is_left(tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert "the path is empty" in refused("init", "")
    assert refused("init", file) == f"fedflat: '{file}' is a file (allowed: a folder)"
    assert "cannot write" in refused("init", file / "below" / "it")
    assert "File name too long" in refused("init", tmp_path / ("long" * 100))
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_written_is_removed_if_a_file_cannot_be_written(tmp_path):
    (tmp_path / "profiles").touch()  # where a folder is needed, after five files
    (tmp_path / "own.txt").write_text("mine", encoding="utf-8")
    assert "profiles" in refused("init", tmp_path)
    assert contents(tmp_path) == {"profiles": "", "own.txt": "mine"}
    assert not (tmp_path / "config").exists()


def test_the_command_names_the_files_and_the_next_command(tmp_path):
    made = fedflat("init", tmp_path / "new")
    assert made.returncode == 0, made.stderr
    *files, following = made.stdout.splitlines()
    assert sorted(files) == [str(tmp_path / "new" / name) for name in FILES]
    assert following == f"Next, in {tmp_path / 'new'}: snakemake --cores 2"


def test_paper_tables_are_at_their_real_place():
    """The files of layouts are inputs of Snakemake's jobs: other paths would outdate the results of a clone."""
    assert PAPER_TABLES.resolve() == PAPER_TABLES
