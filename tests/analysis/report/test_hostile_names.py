"""Names and texts of others are shown on pages, and never interpreted: names of layouts, titles, captions, reasons."""

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fedflat.analysis.layouts.layout import layout_names
from fedflat.analysis.provenance.crate import Contents, readme
from fedflat.analysis.report.figures import Figures
from fedflat.analysis.report.report import render_page
from fedflat.analysis.report.requested import RequestedExperiment
from fedflat.analysis.report.tables import Tables
from fedflat.bench.input.errors import UserError
from tests.analysis.parsed_page import Parsed

NAME = "<img src=x onerror=alert(1)>"
TEXT = f"{NAME} \"' onload=alert(2) & </title></td><script>alert(3)</script> | `x` {{}}\n<b>new line</b> {NAME}"
LATEX = r"}\input{secret} \write18{x}%"


@pytest.fixture(scope="module")
def hostile(little_files: Path, tmp_path_factory: pytest.TempPathFactory) -> RequestedExperiment:
    """An experiment with results in whose files every free text, and every name of a layout, contains markup."""
    little = Path(shutil.copytree(little_files, tmp_path_factory.mktemp("hostile") / "little"))
    file = little / "little.yaml"
    experiment = yaml.safe_load(file.read_text(encoding="utf-8"))
    experiment["description"] = TEXT
    experiment["methods"]["fedavg"] = {"title": TEXT}
    file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
    setting = {"partition": "iid", "participation": "4-of-20"}
    column = {"header": TEXT, "group": TEXT, "metric": "test_accuracy", "select": setting}
    layouts = {
        f"tables/{NAME}": {
            "columns": [column, {**column, "header": f"{TEXT} 2"}],
            "blocks": [{"header": TEXT}],
        },
        f"tables/{LATEX}": {"columns": [column]},
        f"figures/{NAME}": {"kind": "convergence", "panels": [setting]},
        "figures/\"#fragment?%41 & 'x'": {"kind": "convergence", "panels": [setting]},
    }
    for name, layout in layouts.items():
        (little / name).parent.mkdir(exist_ok=True)
        (little / f"{name}.yaml").write_text(yaml.safe_dump({"title": TEXT, "caption": TEXT, **layout}), "utf-8")
    return RequestedExperiment(str(file), little / "results")


@pytest.fixture(scope="module")
def rendered(hostile: RequestedExperiment) -> list[Path]:
    """All files of the report, which tests only read."""
    kinds = (Tables(hostile), Figures(hostile))
    files = [file for kind in kinds for name in kind.names() for file in kind.render(name)]
    return [*files, render_page(hostile)]


TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "nav", "ul", "li", "a", "section", "div",
    "table", "thead", "tbody", "tr", "th", "td", "strong", "u", "sub", "figure", "img", "figcaption",
}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "name", "content", "class", "href", "id", "colspan", "src", "alt", "style"}


def test_pages_contain_only_their_own_elements(rendered: list[Path]) -> None:
    pages = [file for file in rendered if file.suffix == ".html"]
    assert len(pages) == 3
    for page in pages:
        parsed = Parsed(page.read_text(encoding="utf-8"))
        assert {tag for tag, _ in parsed.elements} <= TAGS
        assert {name for _, attributes in parsed.elements for name in attributes} <= ATTRIBUTES
        assert parsed.text.count(TEXT) >= 5, "the texts are shown as they are"


def test_links_and_images_lead_to_the_files(rendered: list[Path]) -> None:
    page = rendered[-1]
    elements = Parsed(page.read_text(encoding="utf-8")).elements
    targets = [attributes[key] for _, attributes in elements for key in ("href", "src") if key in attributes]
    anchors = {f"#{attributes['id']}" for _, attributes in elements if "id" in attributes}
    assert {target for target in targets if target.startswith("#")} == anchors
    files = {page.parent / unquote(target) for target in targets if not target.startswith("#")}
    assert files == set(rendered[:-1])
    assert [len(anchors), len(files)] == [4, 2 * 4 + 2 * 3]


def tokens_of(text: str) -> list[Token]:
    """The parts of a Markdown text, blocks and what is in their lines."""
    blocks = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [part for token in blocks for part in (token, *(token.children or ()))]


def test_markdown_contains_no_html(rendered: list[Path]) -> None:
    texts = [file for file in rendered if file.suffix == ".md"]
    assert len(texts) == 4
    for file in texts:
        tokens = tokens_of(file.read_text(encoding="utf-8"))
        assert {token.content for token in tokens if token.type.startswith("html")} <= {"<u>", "</u>"}
        shown = " ".join(token.content for token in tokens if token.type == "text")
        assert "<script>alert(3)</script>" in shown, "the text is shown as it is"
        for image in (token for token in tokens if token.type == "image"):
            assert (file.parent / unquote(str(image.attrs["src"]))).is_file()


def test_the_readme_of_an_archive_contains_no_html() -> None:
    about = {"target": NAME, "description": TEXT, "ended": "2026-11-22T00:00:00"}
    has = {"models": 0, "states": 0, "has_reports": True, "has_own_experiment": True}
    tokens = tokens_of(readme(Contents(**about, **has, runs={}, commands=[["table", NAME]], options=[])))
    assert not [token.content for token in tokens if token.type.startswith("html")]


def test_latex_contains_no_commands_of_others(rendered: list[Path]) -> None:
    tables = [file.read_text(encoding="utf-8") for file in rendered if file.suffix == ".tex"]
    assert len(tables) == 2
    for table in tables:
        assert not re.search(r"\\(input|write18)", table)
        assert re.search(r"\\label\{tab:little-[\w.-]+\}\n", table)


def test_a_name_that_cannot_be_printed_is_one_line(little: Path) -> None:
    (little / "tables").mkdir()
    (little / "tables" / "line\nend.yaml").touch()
    with pytest.raises(UserError, match=r"little.yaml: the name 'line\\nend' has characters"):
        layout_names(str(little / "little.yaml"), "tables")
