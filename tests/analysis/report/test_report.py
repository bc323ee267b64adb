"""The report: layouts that fit their experiment, files where they belong, and a page that links them."""

import re
import shlex
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from fedflat.analysis.figures import draw as figures
from fedflat.analysis.figures.base import FigureLayout
from fedflat.analysis.layouts.tidy import Tidy
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.headline import summary
from fedflat.analysis.report.report import render_page
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.analysis.tables import table as tables
from fedflat.analysis.tables.layout import load_table
from fedflat.bench.experiments.address import CellAddress
from fedflat.bench.experiments.experiment import Experiment
from fedflat.bench.experiments.files import PAPER_TABLES
from fedflat.bench.experiments.results import PARTITION, RUNS, ResultPaths
from fedflat.bench.input.errors import UserError
from tests.analysis.conftest import HARD, metrics, write
from tests.places import MINI
from tests.tiers import thorough

QUICK = RequestedExperiment("quick", Path("results"))
BELOW = ResultPaths(Path())


def test_inputs_of_quick_are_cells_of_quick(quick: Experiment) -> None:
    named = {f"{RUNS}.csv", PARTITION} | {f"{name}.csv" for name in QUICK.analyses}
    layouts = [tables.inputs(load_table("quick", name), quick, BELOW) for name in Tables(QUICK).names()]
    layouts += [figures.load_figure("quick", name).inputs(quick, BELOW) for name in Figures(QUICK).names()]
    for paths in layouts:
        assert paths
        assert len(set(paths)) == len(paths)
        for path in paths:
            stage, experiment, *cell, name = path.parts
            assert (stage in {"experiments", "partitions"}, experiment, name in named) == (True, "quick", True)
            assert "/".join(part for part in cell if not part.startswith("seed-")) in quick.cells()


def test_inputs_are_the_files_that_exist_when_all_is_run(realistic: Tidy, quick: Experiment) -> None:
    for name in Figures(QUICK).names():
        for file in figures.load_figure("quick", name).inputs(quick, realistic.paths):
            assert file.is_file() or "fedgf" in file.parts


def test_tables_and_figures_of_quick() -> None:
    assert Tables(QUICK).names() == ["accuracy", "flatness"]
    shown = [
        "convergence", "cost", "differences", "drift", "labels", "perturbation", "perturbation_rise", "surfaces",
    ]  # fmt: skip
    assert Figures(QUICK).names() == shown
    assert (Tables(QUICK).left_out(), Figures(QUICK).left_out()) == ([], [])


def test_render_writes_where_it_says(realistic: Tidy) -> None:
    folder = realistic.results / "reports" / "quick"
    written = Tables(RequestedExperiment("quick", realistic.results)).render("accuracy")
    assert written == [folder / "tables" / f"accuracy.{extension}" for extension in ("md", "tex", "csv", "html")]
    written += Figures(RequestedExperiment("quick", realistic.results)).render("labels")
    assert written[4:] == [folder / "figures" / f"labels.{extension}" for extension in ("png", "pdf", "md")]
    assert all(path.stat().st_size for path in written)
    shown = (
        "# Images per client and class\n\n![Images per client and class](labels.png)\n\n"
        "Training images of scikit-learn's digits.\n\n"
        "- The split of seed 0, the same for every method; empty: no image of the class.\n"
    )
    assert written[-1].read_text(encoding="utf-8") == shown


def test_page_holds_all_tables_and_links_only_what_exists(realistic: Tidy) -> None:
    Tables(RequestedExperiment("quick", realistic.results)).render("accuracy")
    Figures(RequestedExperiment("quick", realistic.results)).render("labels")
    page = render_page(RequestedExperiment("quick", realistic.results))
    text = page.read_text(encoding="utf-8")
    assert text.count("<table ") == 2
    assert text.count("Not drawn yet.") == 7
    images = re.findall(r'src="([^"]+)"', text)
    assert images == ["figures/labels.png"]
    assert (page.parent / images[0]).is_file()
    assert "http" not in text


def test_captions_are_short_and_say_nothing_twice(realistic: Tidy) -> None:
    requested = RequestedExperiment("quick", realistic.results)
    captions = [Tables(requested).filled(name).caption for name in Tables(requested).names()]
    captions += [Figures(requested).on_page(name).caption for name in Figures(requested).names()]
    assert len(captions) == 10
    for caption in captions:
        assert 1 <= len(re.findall(r"[.](?= [A-Z]|$)", caption.text)) <= 2
        parts = re.split(r"[.;,:] ", " ".join([caption.whole, *caption.notes]))
        clauses = [part.strip(".") for part in parts if len(part.split()) >= 4]
        assert len(clauses) == len(set(clauses)), clauses


def test_the_page_shrinks_wide_tables_in_print_and_lists_notes(realistic: Tidy) -> None:
    text = render_page(RequestedExperiment("quick", realistic.results)).read_text(encoding="utf-8")
    accuracy, flatness = (float(em) for em in re.findall(r'<table style="--em: ([0-9.]+)">', text))
    assert 20 < accuracy < flatness
    assert "@media print" in text
    assert text.count('<ul class="notes">') == 10
    for figure in re.findall(r'<section class="figure".*?</section>', text, re.DOTALL):
        assert re.search(r"<figcaption>.*?</figcaption></figure>\n<ul class=.notes.>", figure)


def test_the_page_begins_with_results_and_ends_with_what_describes_the_runs() -> None:
    assert max(kind.page_order for kind in figures.KINDS.values()) < FigureLayout.page_order, "a new kind is the last"
    shown = [
        "convergence", "differences", "perturbation", "perturbation_rise", "surfaces", "drift", "cost", "labels",
    ]  # fmt: skip
    assert Figures(QUICK).in_page_order() == shown
    numbered = Figures(RequestedExperiment("fedlesam", Path("results")))
    assert numbered.in_page_order()[:4] == ["1a", "1b", "1c", "2"]


def test_narrow_figures_are_narrow_on_the_page(realistic: Tidy) -> None:
    """A map of three classes is narrower than the text; a file that is no picture has a place, too."""
    requested = RequestedExperiment("quick", realistic.results)
    for cell in realistic.experiment.addresses:
        file = realistic.path("partition", cell)
        if file.is_file():
            rows = pd.read_csv(file)
            rows[rows["label"] < 3].to_csv(file, index=False)
    Figures(requested).render("labels")
    share = Figures(requested).on_page("labels").share
    assert 0.3 < share < 0.7
    text = render_page(requested).read_text(encoding="utf-8")
    assert f'style="--share: {share:.2f}"><img src="figures/labels.png"' in text
    requested.report_paths.figure("labels")[0].write_bytes(b"none")
    assert Figures(requested).on_page("labels").share == 1


@thorough
def test_page_leaves_no_dead_link(realistic: Tidy) -> None:
    requested = RequestedExperiment("quick", realistic.results)
    for name in Tables(requested).names():
        Tables(requested).render(name)
    for name in Figures(requested).names():
        Figures(requested).render(name)
    page = render_page(requested)
    links = re.findall(r'(?:src|href)="([^"#]+)"', page.read_text(encoding="utf-8"))
    assert len(links) == 2 * 4 + 8 * 4
    assert all((page.parent / link).is_file() for link in links)


def test_changed_values_are_those_of_the_report(tmp_path: Path) -> None:
    """A run with one seed is complete when one seed was requested."""
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80]))
    text = (
        Tables(RequestedExperiment("quick", tmp_path, {"grid.seeds": [0]}))
        .render("accuracy")[0]
        .read_text(encoding="utf-8")
    )
    assert "80.00" in text
    assert "of 3 seeds" not in text


def test_inputs_begin_with_the_layout() -> None:
    assert Tables(QUICK).inputs("accuracy")[0] == PAPER_TABLES / "quick" / "tables" / "accuracy.yaml"
    assert Figures(QUICK).inputs("drift")[0] == PAPER_TABLES / "quick" / "figures" / "drift.yaml"
    assert len(Figures(QUICK).inputs("drift")) == 1 + len(figures.load_figure("quick", "drift").methods)


def test_summary_names_leader_runner_up_and_counts(tmp_path: Path, quick: Experiment) -> None:
    finals = {"fedavg": [80, 80, 80], "fedsam": [81, 83, 85], "fedlesam": [82, 82, 82], "fedgf": [99, 99, 99]}
    for path in quick.cells():
        *place, method = path.split("/")
        if method in finals:
            ends = {1: 2} if method == "fedgf" and tuple(place) == ("digits", "dirichlet-0.1", "4-of-20") else None
            cell = CellAddress(type(HARD)(*place), method)
            write(tmp_path, cell, "metrics", metrics(finals[method], diverged=ends))
    lines = summary(RequestedExperiment("quick", tmp_path)).splitlines()
    assert 3 <= len(lines) <= 5
    assert lines[0] == "quick: 48 of 144 runs, 1 of them diverged"
    # FedGF is higher, but one of its runs diverged.
    assert lines[1].endswith("FedSAM with 83.00 %, then FedLESAM with 82.00 %")
    assert str(tmp_path / "reports" / "quick" / "index.html") in lines[2]


def test_summary_does_not_crown_a_method_with_missing_settings(tmp_path: Path) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80, 90, 85]))
    assert "none leads" in summary(RequestedExperiment("quick", tmp_path))


def test_unknown_names_and_no_runs_are_one_line(tmp_path: Path) -> None:
    tables, figures = Tables(RequestedExperiment("quick", tmp_path)), Figures(RequestedExperiment("quick", tmp_path))
    for target in ("table_accuracy", "quick_table_accuracy"):  # as Snakemake calls it
        with pytest.raises(UserError, match=f"unknown table of experiment quick '{target}'; did you mean 'accuracy'"):
            tables.render(target)
    with pytest.raises(
        UserError, match=r"^'drift' is a figure of experiment quick; for it: fedflat figure quick drift$"
    ):
        tables.render("drift")
    with pytest.raises(UserError, match=r"^'accuracy' is a table of experiment quick; for it: fedflat table quick acc"):
        figures.render("accuracy")
    with pytest.raises(UserError, match=r"^which table of experiment quick\? \(allowed: accuracy, flatness\)$"):
        tables.render("")
    with pytest.raises(UserError, match="unknown table of experiment quick 'acuracy'; did you mean 'accuracy'"):
        Tables(RequestedExperiment("quick", tmp_path)).render("acuracy")
    with pytest.raises(UserError, match="unknown figure of experiment quick 'drifts'; did you mean 'drift'"):
        Figures(RequestedExperiment("quick", tmp_path)).render("drifts")
    requested = RequestedExperiment("quick", tmp_path)
    for make in (
        partial(summary, requested),
        partial(render_page, requested),
        *(partial(Tables(requested).render, name) for name in Tables(requested).names()),
    ):
        with pytest.raises(UserError, match="no run of experiment quick"):
            make()
    for name in Figures(requested).names():
        with pytest.raises(UserError, match="no run of experiment quick"):
            Figures(requested).render(name)
    assert list(tmp_path.iterdir()) == []


def test_the_command_that_produces_the_runs(tmp_path: Path) -> None:
    own = RequestedExperiment(MINI, tmp_path / "my results", {"training.rounds": 2, "grid.seeds": [0]})
    with pytest.raises(UserError) as caught:
        Tables(own).render("accuracy")
    command = str(caught.value).partition("train them with: ")[2]
    assert shlex.split(command) == [
        "snakemake", "--cores", "2", "mini_table_accuracy", "--config",
        f"experiments=[{MINI}]", f"results={tmp_path / 'my results'}", "rounds=2", "seeds=[0]",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"snakemake --cores 2 quick_figure_drift$"):
        Figures(RequestedExperiment("quick", Path("results"))).render("drift")
    with pytest.raises(UserError, match=r"snakemake --cores 2 quick \(with training.lr set in the experiment's file"):
        summary(RequestedExperiment("quick", Path("results"), {"training.lr": 1}))


def test_one_cell_is_enough_for_tables_and_page(tmp_path: Path) -> None:
    write(tmp_path, CellAddress(HARD, "fedavg"), "metrics", metrics([80, 81, 82]))
    requested = RequestedExperiment("quick", tmp_path)
    assert "not run" in Tables(requested).render("accuracy")[0].read_text(encoding="utf-8")
    assert "not run" in Tables(requested).render("flatness")[0].read_text(encoding="utf-8")
    assert all(file.is_file() for file in Figures(requested).render("convergence"))
    assert "quick: 3 of 144 runs" in render_page(requested).read_text(encoding="utf-8")


def test_a_layout_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """A method of the catalog that the experiment lacks is left out; another name is a mistake."""
    own = shutil.copytree(Path(MINI).parent, tmp_path / "own")
    experiments = own / "experiments.yaml"
    text = experiments.read_text(encoding="utf-8")
    experiments.write_text(re.sub(r"  fedsam:.*\n", "", text), encoding="utf-8")
    requested = RequestedExperiment(str(experiments), tmp_path)
    assert Tables(requested).layout("accuracy").methods == ("fedavg",)
    for kind, file in ((Tables, own / "tables" / "accuracy.yaml"), (Figures, own / "figures" / "drift.yaml")):
        layout = file.read_text(encoding="utf-8")
        for old, new, wrong in (
            ("fedavg, fedsam", "fedavg, fedsma", "unknown method of experiment mini 'fedsma'"),
            ("partition: dirichlet-0.1", "partition: iid", "unknown partition of experiment mini 'iid'"),
        ):
            file.write_text(layout.replace(old, new), encoding="utf-8")
            with pytest.raises(UserError, match=f"^'{file}': {wrong}"):
                kind(requested).inputs(file.stem)


def test_a_layout_is_like_another_one_but_for_the_keys_that_it_gives(tmp_path: Path) -> None:
    """Also over several files, all of which a table is made from; a key is replaced as a whole."""
    shutil.copytree(PAPER_TABLES / "quick", tmp_path / "like")
    experiment = tmp_path / "like" / "experiments.yaml"
    experiment.write_text(
        experiment.read_text(encoding="utf-8").replace("name: quick\n", "name: mine\n"), encoding="utf-8"
    )
    source = str(experiment)
    folder = tmp_path / "like" / "tables"
    (folder / "7.yaml").write_text("like: accuracy\ntitle: Seven\nmethods: [fedsam]\n", encoding="utf-8")
    (folder / "8.yaml").write_text("like: 7\ntitle: Eight\n", encoding="utf-8")
    eight, accuracy = load_table(source, "8"), load_table(source, "accuracy")
    assert (eight.title, eight.methods) == ("Eight", ("fedsam",))
    assert (eight.caption, eight.columns) == (accuracy.caption, accuracy.columns)
    requested = RequestedExperiment(source, Path("results"))
    assert Tables(requested).inputs("8")[:3] == [folder / "8.yaml", folder / "7.yaml", folder / "accuracy.yaml"]

    for like, message in (
        ("acuracy", r"unknown layout in like of '.*7\.yaml': 'acuracy'; did you mean 'accuracy'\?"),
        ("7", r"7\.yaml': like: 7: a layout cannot be based on itself"),
        ("8", r"8\.yaml': like: 7: a layout cannot be based on itself"),
    ):
        (folder / "7.yaml").write_text(f"like: {like}\n", encoding="utf-8")
        with pytest.raises(UserError, match=message) as error:
            Tables(requested).inputs("7")
        assert "\n" not in str(error.value)


def test_an_analysis_is_of_the_settings_that_save_what_it_needs() -> None:
    """FedGF's runs store states with 5 clients alone."""
    paths = [CellAddress.of(path) for path in RequestedExperiment("fedgf", Path("none")).analysed("discrepancy")]
    assert {cell.setting.participation for cell in paths} == {"5-of-100"}
    assert {cell.setting.dataset for cell in paths} == {
        "cifar10", "cifar100", "cifar100_resnet18", "cifar100_alpha0.5", "cifar100_alphas"
    }  # fmt: skip


def test_a_copy_of_a_papers_folder_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    """Its tables would show printed numbers, which only the paper and what extends it have."""
    copied = shutil.copytree(PAPER_TABLES / "fedgf", tmp_path / "fg") / "experiments.yaml"
    text = copied.read_text(encoding="utf-8").replace("\nname: fedgf\n", "\nname: fg\n")
    copied.write_text(text, encoding="utf-8")
    with pytest.raises(
        UserError, match=r"^'.*fg/tables/3.yaml': 'fg' has no printed numbers .*extends: fedgf.*remove published: '3'"
    ):
        Tables(RequestedExperiment(str(copied), tmp_path)).inputs("3")
    (extending := tmp_path / "mine.yaml").write_text("name: mine\nextends: fedgf\n", encoding="utf-8")
    assert Tables(RequestedExperiment(str(extending), tmp_path)).inputs("3")
