"""Methods in a file of the user: identity, records, components of the catalog, and mistakes in one line."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedflat.analysis.planning.workflow import Workflow
from fedflat.bench.code.named_code import trust_file
from fedflat.bench.experiments.experiment import Experiment, load_experiment
from fedflat.bench.experiments.run_config import RunConfig
from fedflat.bench.experiments.sections.method_choice import MethodConfig
from fedflat.bench.input.errors import UserError
from fedflat.bench.methods import user_file
from fedflat.bench.methods.compose import SLOTS, compose
from fedflat.bench.methods.recipe import Recipe
from fedflat.bench.training.cell_trainer import CellTrainer
from fedflat.bench.training.run_directory import RunDirectory
from fedflat.bench.training.train import train_cell
from fedflat.method_description import describe
from tests.bench.training.small_runs import check_resume_of, contents
from tests.commands import fedflat, refused
from tests.problems import Problem, train

CPU = torch.device("cpu")
SETTING = "digits/dirichlet-0.1/4-of-20"

SOURCE = """
from pydantic import Field
from fedflat.bench.methods.base import Perturbation, unit
from fedflat.bench.methods.recipe import Components, Recipe

class Memory(Perturbation):
    name = "memory"
    client_state = ("last",)
    rho: float = Field(ge=0)
    share: float = Field(default=0.5, ge=0)

    def delta(self, w, gradient, client):
        client.scratch["last"] = self.rho * unit(gradient(w) + self.share * client.state["last"])
        return client.scratch["last"]

    def finish(self, w, client):
        client.state["last"] = client.scratch["last"]

METHOD = Recipe("memory", "Memory", "a test", Components(Memory))
"""
EXPERIMENT = """
name: mine
extends: quick
training: {rounds: 6, local_epochs: 1, batch_size: 24, lr: 0.1}
engine: {checkpoint_seconds: 0}
grid:
  partition: [{name: dirichlet, alpha: 0.1, clients: 20}]
  participation: [{active: 4}]
  seeds: [0]
methods:
  mine: {file: my_method.py, hyperparameters: {rho: 0.1}}
  fedavg:
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a method and an experiment of it."""
    return written(tmp_path / "own")


def written(folder: Path, source: str = SOURCE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "my_method.py").write_text(source, encoding="utf-8")
    trust_file(folder / "my_method.py", user_file.KIND)
    (folder / "experiments.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return folder


def recipe_from_file(file: Path, chosen: dict[str, str] | None = None) -> Recipe:
    """The method of a file that the user has named."""
    trust_file(file, user_file.KIND)
    return user_file.recipe_from_file(file, chosen)


def experiment(folder: Path) -> Experiment:
    return load_experiment(str(folder / "experiments.yaml"))


def config(folder: Path, label: str = "mine") -> RunConfig:
    return experiment(folder).cell(f"{SETTING}/{label}").runs[0]


def test_the_identity_is_that_of_the_content(own, tmp_path):
    before = config(own)
    assert before.method.hyperparameters == {"rho": 0.1, "share": 0.5}
    assert before.training.aggregation == "uniform"
    elsewhere = Path(shutil.move(own, tmp_path / "elsewhere"))
    (elsewhere / "my_method.py").touch()
    assert config(elsewhere).identity == before.identity
    assert config(written(own, SOURCE + "# a remark\n")).identity != before.identity


def test_an_edit_within_one_second_and_of_the_same_length_is_seen(own):
    """Python's bytecode files know a source by whole seconds and its length alone."""
    for weight in (0.5, 0.7, 0.9):
        (own / "my_method.py").write_text(SOURCE.replace("default=0.5", f"default={weight}"), encoding="utf-8")
        assert recipe_from_file(own / "my_method.py").hyperparameters["share"].default == weight
    assert sorted(path.name for path in own.iterdir()) == ["experiments.yaml", "my_method.py"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_run_keeps_the_file_and_does_without_it(ends, own, tmp_path):
    (own / "my_method.py").write_bytes(SOURCE.replace("\n", ends).encode())
    run = train(config(own), tmp_path / "run", CPU)
    assert (run.path / "method.py").read_bytes() == (own / "my_method.py").read_bytes()
    identity = config(own).identity
    shutil.rmtree(own)
    again = RunDirectory(Path(shutil.move(run.path, tmp_path / "moved")))
    assert again.config.identity == again.identity == identity
    assert again.config.method.recipe.title == "Memory"


def test_runs_of_other_methods_keep_no_file(own, tmp_path):
    assert not (train(config(own, "fedavg"), tmp_path / "run", CPU).path / "method.py").exists()


def test_an_edited_file_is_another_configuration(own, tmp_path):
    out = tmp_path / "seed-0"
    train(config(own), out, CPU)
    before = contents(out)
    (own / "my_method.py").write_text(SOURCE.replace("unit(gradient(w)", "unit(2 * gradient(w)"), encoding="utf-8")
    with pytest.raises(UserError, match="holds a run of another configuration") as error:
        train(config(own), out, CPU)
    line = str(error.value)
    assert f"'{own}/my_method.py' has been edited; the run's copy is '{out}/method.py'" in line
    assert contents(out) == before
    other = train(config(own), tmp_path / "other", CPU).path
    assert contents(other)["final.safetensors"] != before["final.safetensors"]
    assert "2 * gradient" in (other / "method.py").read_text(encoding="utf-8")


def test_snakemake_plans_a_cell_whose_file_was_edited(own, tmp_path):
    """The list of its runs is outdated; the run of the old file stays."""
    options = {"experiments": [str(own / "experiments.yaml")], "results": str(tmp_path / "results")}
    names = ("experiment", "dataset", "partition", "participation", "method")
    wildcards = SimpleNamespace(**dict(zip(names, ["mine", *f"{SETTING}/mine".split("/")], strict=True)))
    train_cell("mine", experiment(own).cell(f"{SETTING}/mine"), tmp_path / "results", CPU, lambda line: None)
    assert Workflow.of(options).outdated_lists(wildcards) == []
    (own / "my_method.py").write_text(SOURCE + "# edited\n", encoding="utf-8")
    file = tmp_path / "results" / "experiments" / "mine" / SETTING / "mine" / "runs.csv"
    assert Workflow.of(options).outdated_lists(wildcards) == [file]
    train_cell("mine", experiment(own).cell(f"{SETTING}/mine"), tmp_path / "results", CPU, lambda line: None)
    assert Workflow.of(options).outdated_lists(wildcards) == []
    assert len(list((tmp_path / "results" / "store").rglob("config.json"))) == 2


def test_a_moved_file_is_no_difference(own, tmp_path):
    train(config(own), tmp_path / "run", CPU)
    elsewhere = Path(shutil.move(own, tmp_path / "elsewhere"))
    with pytest.raises(UserError, match=r"rho: 0.1 there, 0.2 here"):
        (elsewhere / "experiments.yaml").write_text(EXPERIMENT.replace("rho: 0.1", "rho: 0.2"), encoding="utf-8")
        train(config(elsewhere), tmp_path / "run", CPU)


def test_a_file_that_is_edited_while_its_cell_is_trained(own, tmp_path, monkeypatch):
    """What has been read when the command began is trained and stored, for all seeds."""
    (own / "experiments.yaml").write_text(EXPERIMENT.replace("seeds: [0]", "seeds: [0, 1]"), encoding="utf-8")

    train_round = CellTrainer.train_round

    def edit(engine, runs):
        (own / "my_method.py").write_text(SOURCE + "# later\n", encoding="utf-8")
        return train_round(engine, runs)

    cell = experiment(own).cell(f"{SETTING}/mine")
    monkeypatch.setattr("fedflat.bench.training.cell_trainer.CellTrainer.train_round", edit)
    folder = train_cell("mine", cell, tmp_path / "cell", CPU, lambda line: None)
    for seed in (0, 1):
        assert (folder / f"seed-{seed}" / "method.py").read_text(encoding="utf-8") == SOURCE
    with pytest.raises(UserError, match=r"my_method.py' was edited after the command had started"):
        train_cell("mine", cell, tmp_path / "again", CPU, lambda line: None)
    assert not (tmp_path / "again").exists()


def test_resume_is_bitwise(own, tmp_path, monkeypatch):
    check_resume_of(config(own), CPU, tmp_path, monkeypatch, UserError)


BROKEN = {
    "no METHOD": ("x = 1\n", "must define METHOD = Recipe(...)"),
    "METHOD of another type": ("METHOD = 'fedsam'\n", "must define METHOD = Recipe(...)"),
    "empty": ("", "must define METHOD = Recipe(...)"),
    "syntax": (SOURCE.replace("class Memory(Perturbation):", "class Memory(Perturbation)"), "fails in line 6: Synta"),
    "no text": ("\0", "my_method.py' fails"),
    "import": ("import no_such_package\n", "fails in line 1: ModuleNotFoundError: No module named 'no_such_package'"),
    "exception": ("x = 1\n\ndef f():\n    return 1 / 0\n\nf()\n", "fails in line 4: ZeroDivisionError: division"),
    "exit": ("import sys\nsys.exit(3)\n", "fails in line 2: SystemExit: 3"),
    "many lines": ("raise ValueError('one\\ntwo')\n", "fails in line 1: ValueError: one two"),
    "bare": ("assert False\n", "fails in line 1: AssertionError"),
    "a class for components": (
        SOURCE.replace("Components(Memory)", "Memory"),
        "fails in line 19: memory: components must be Components(...), not <cl",
    ),
    "wrong slot": (
        SOURCE.replace("Components(Memory)", "Components(server=Memory)"),
        "server must be a subclass of Server, not",
    ),
    "no name": (SOURCE.replace('    name = "memory"\n', ""), 'Memory needs a name, for example: name: ClassVar[str] ='),
    "takes": (
        SOURCE.replace("Components(Memory)", "Components(Memory), takes=('roh',)"),
        "in takes 'roh'; did you mean 'rho'?",
    ),
    "pydantic": (SOURCE.replace("rho: float", "rho: 3.5"), "fails in line 6: "),
    "state of a server without correction": (
        SOURCE.replace("Components(Memory)", "Components(Memory, server=DynServer)").replace(
            "from pydantic", "from fedflat.bench.methods.servers.dyn import DynServer\nfrom pydantic"
        ),
        "server feddyn needs a correction that stores H, which none does not (allowed: feddc, feddyn",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_one_line(source, message, own):
    (own / "my_method.py").write_text(source, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        experiment(own)
        config(own)
    assert message in str(caught.value)
    assert "my_method.py'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", [None, "def f(:\n", "x = 1\n", "1 / 0\n"], ids=["missing", "syntax", "no", "error"])
def test_the_command_exits_with_2(source, own, tmp_path):
    file = own / "my_method.py"
    file.unlink()
    if source is not None:
        file.write_text(source, encoding="utf-8")
    line = refused("run", own / "experiments.yaml", f"{SETTING}/mine", "--results", tmp_path / "out", "--device", "cpu")
    assert f"method file '{file}'" in line
    assert not (tmp_path / "out").exists()


def test_methods_explains_a_file_or_refuses_it(own):
    shown = fedflat("methods", own / "my_method.py")
    assert shown.returncode == 0, shown.stderr
    assert "Memory (memory): a test" in shown.stdout
    assert "share: (≥ 0; default 0.5)" in shown.stdout
    assert "rho: (≥ 0; required)" in shown.stdout, "neutral values are marked by the component, and this one has none"
    assert "cannot read the method file" in refused("methods", own / "another.py")
    (own / "no_method.py").write_text("x = 1", encoding="utf-8")
    assert "must define METHOD" in refused("methods", own / "no_method.py")


def test_what_a_method_costs_is_left_out_if_no_example_fits(own):
    source = SOURCE.replace("rho: float = Field(ge=0)", "rho: int = Field(ge=0)")
    (own / "my_method.py").write_text(source.replace('"memory", "Memory"', '"fedsam", "Memory"'), encoding="utf-8")
    said = describe(str(own / "my_method.py"))
    assert "not measured: fedsam: rho = 0.1: Input should be a whole number" in said
    assert "caldarola" not in said, "the catalog's namesake is another method"


def test_a_method_is_named_in_one_way(own):
    two = {"file": str(own / "my_method.py"), "name": "fedsam", "hyperparameters": {"rho": 0.1}}
    with pytest.raises(UserError, match="by name or by file, not by both"):
        MethodConfig.parse(two)
    text = shutil.move(own / "my_method.py", own / "my_method.txt")
    with pytest.raises(UserError, match=r"my_method.txt' is no Python file \(its name must end in .py\)"):
        recipe_from_file(Path(text))


def test_a_file_takes_components_of_the_catalog(own):
    """It trains as the same composition within the file, and has an identity and a title of its own."""
    whole = SOURCE.replace(
        "from pydantic", "from fedflat.bench.methods.corrections.client_momentum import ClientMomentum\nfrom pydantic"
    )
    whole = whole.replace("Components(Memory)", "Components(Memory, correction=ClientMomentum)")
    (own / "whole.py").write_text(whole, encoding="utf-8")
    trust_file(own / "my_method.py", user_file.KIND)
    values = {"rho": 0.1, "alpha": 0.3}
    mixed = MethodConfig.parse({"file": str(own / "my_method.py"), "correction": "fedcm", "hyperparameters": values})
    assert mixed.recipe.title == "Memory + fedcm"
    assert mixed.hyperparameters == {**values, "share": 0.5}
    assert mixed.slots == {"correction": "fedcm"}
    runs = [Problem(1).run(recipe, values) for recipe in (mixed.recipe, recipe_from_file(own / "whole.py"))]
    assert all(torch.equal(*pair) for pair in zip(*(run.global_params for run in runs), strict=True))
    assert MethodConfig.parse(mixed.model_dump()) == mixed


def test_an_experiment_combines_a_file_with_the_catalog(own, tmp_path):
    """Without a change of the identity of the file alone; the run keeps the file, and trains."""
    before = config(own).identity
    more = "  mine_cm: {file: my_method.py, correction: fedcm, hyperparameters: {rho: 0.1, alpha: 0.3}}\n"
    (own / "experiments.yaml").write_text(EXPERIMENT + more, encoding="utf-8")
    assert config(own).identity == before != config(own, "mine_cm").identity
    run = train(config(own, "mine_cm"), tmp_path / "run", CPU)
    assert (run.path / "method.py").read_bytes() == (own / "my_method.py").read_bytes()
    assert run.config.method.recipe.components.correction is SLOTS["correction"]["fedcm"]


def test_a_component_does_not_replace_the_files_own(own):
    file = own / "my_method.py"
    with pytest.raises(UserError, match=r"perturbation: sam would replace the method's own perturbation 'memory' "):
        recipe_from_file(file, {"perturbation": "sam"})
    with pytest.raises(UserError, match=r"my_method.py': unknown correction 'fedcmm'; did you mean 'fedcm'"):
        recipe_from_file(file, {"correction": "fedcmm"})
    with pytest.raises(UserError, match=r"my_method.py': server feddyn needs a correction that stores H"):
        recipe_from_file(file, {"server": "feddyn"})


def test_a_server_in_a_file_may_need_a_correction_that_the_experiment_names(own):
    source = (
        "from fedflat.bench.methods.recipe import Components, Recipe\n"
        "from fedflat.bench.methods.servers.dyn import DynServer\n\n\n"
        "class Mine(DynServer):\n    name = 'mine'\n\n\n"
        "METHOD = Recipe('mine', 'Mine', 'a test', Components(server=Mine))\n"
    )
    (own / "server.py").write_text(source, encoding="utf-8")
    assert recipe_from_file(own / "server.py", {"correction": "feddyn"}).name == "mine + feddyn"
    with pytest.raises(UserError, match="server mine needs a correction that stores H, which none does not"):
        recipe_from_file(own / "server.py")


def test_unlike_defaults_of_one_name_stay_apart(own):
    """Filling in defaults changes no method."""
    (own / "my_method.py").write_text(
        SOURCE.replace("import Perturbation", "import Correction, Perturbation").replace(
            "METHOD", "class Half(Correction):\n    name = 'half'\n    share: float = 0.25\n\nMETHOD"
        ).replace("Components(Memory)", "Components(Memory, Half)")
    , encoding="utf-8")  # fmt: skip
    method = config(own).method
    assert method.hyperparameters == {"rho": 0.1, "perturbation.share": 0.5, "correction.share": 0.25}
    assert method.recipe.build(method.hyperparameters) == method.recipe.build({"rho": 0.1})
    again = MethodConfig.parse(method.model_dump())
    assert again == method
    given = method.recipe.complete({"rho": 0.1, "share": 0.75})
    assert given == {"rho": 0.1, "share": 0.75}


def test_two_components_with_state_of_one_name_are_refused(own):
    """The engine keeps state by name: one would overwrite the other. Shared by a common base, it is meant."""
    source = SOURCE.replace('client_state = ("last",)', 'server_state = ("m",)')
    source = source.replace(
        "from pydantic", "from fedflat.bench.methods.servers.momentum import Momentum\nfrom pydantic"
    )
    (own / "my_method.py").write_text(
        source.replace("Components(Memory)", "Components(Memory, server=Momentum)"), encoding="utf-8"
    )
    with pytest.raises(UserError, match="both have a server_state 'm': rename one of them"):
        recipe_from_file(own / "my_method.py")
    assert compose({"perturbation": "toga", "correction": "fedtoga", "server": "feddyn"})


FAILS = {
    "a name that is not there": ("return g + self.lamb * 0 * g", "in line \\d+: AttributeError"),
    "a wrong shape": ("return g[:3]", "RuntimeError: The (expanded )?size of (the )?tensor"),
    "nothing": ("return None", "TypeError"),
}


@pytest.mark.parametrize("case", FAILS)
def test_a_method_that_fails_at_work_is_one_line_and_leaves_nothing(case, tmp_path):
    body, message = FAILS[case]
    file = tmp_path / "fails.py"
    file.write_text(
        "from fedflat.bench.methods.base import Correction\n"
        "from fedflat.bench.methods.recipe import Components, Recipe\n\n\n"
        "class Fails(Correction):\n    name = 'fails'\n\n    def direction(self, g, w, client):\n"
        f"        {body}\n\n\nMETHOD = Recipe('fails', 'Fails', 'a test', Components(correction=Fails))\n",
        encoding="utf-8",
    )
    changes = {"methods.fails": {"file": str(file)}, "training.rounds": 1}
    config = load_experiment("quick", changes).cell("digits/dirichlet-0.1/4-of-20/fails").runs[0]
    with pytest.raises(UserError, match=f"fails.py' fails.*{message}") as error:
        train(config, tmp_path / "run", torch.device("cpu"))
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fails.py"]
    with pytest.raises(UserError, match=f"fails.py' fails.*{message}"):
        describe(str(file))
