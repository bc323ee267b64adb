"""The interactive page in headless Chromium: what a reader clicks, types and downloads."""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.analysis.explorer.frames_by_hand import FINAL, OWN, explorer, frames, with_segmentation

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
if CHROMIUM is None:
    pytest.skip("needs Chromium, such as Debian's package chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright of the extra dev")

FLAGS = ["--no-sandbox", "--enable-unsafe-swiftshader", "--use-angle=swiftshader"]
"""No sandbox, because containers run as root; WebGL without a GPU."""

TUNED = {f"{method} tuned" for method in FINAL}
FIRST = "digits/dirichlet-0.6/4-of-20"


@pytest.fixture(scope="module")
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        yield (opened := playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS))
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "explore.html"
    path.write_text(explorer().page(), encoding="utf-8")
    return path


def visit(browser: "sync_api.Browser", file: Path, **options: object) -> "sync_api.Page":
    """The opened page; what its console says and what it requests are in its attributes `said` and `requested`."""
    page = browser.new_page(**options)
    page.set_default_timeout(20_000)
    page.said, page.requested = [], []
    page.on("console", lambda message: page.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
    page.on("request", lambda request: page.requested.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    settled(page)
    return page


@pytest.fixture
def page(browser: "sync_api.Browser", file: Path) -> Iterator["sync_api.Page"]:
    page = visit(browser, file, viewport={"width": 1280, "height": 900})
    yield page
    assert not [line for line in page.said if line.startswith("error")]
    assert {url for url in page.requested if not url.startswith("blob:")} == {file.as_uri()}, "nothing is loaded"
    page.close()


def settled(page: "sync_api.Page") -> None:
    """Wait until changes are shown, which happens in the next frame."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def entries(page: "sync_api.Page", place: str) -> list[str]:
    """The methods that a part of the page shows, in its order."""
    return page.locator(f"{place} [data-entry]:visible").evaluate_all("all => all.map(one => one.dataset.entry)")


def curves_of(page: "sync_api.Page", chart: str = "curves-chart") -> set[str]:
    """The methods whose points a chart has drawn."""
    return set(page.evaluate(f"document.getElementById('{chart}').data.map((t) => t.meta?.entry).filter(Boolean)"))


def methods(found: list[str]) -> list[str]:
    return [entry.split()[0] for entry in found]


def test_a_click_on_a_head_sorts(page: "sync_api.Page") -> None:
    runs, _ = frames()
    for column, key in (("test_accuracy", FIRST), ("communicated_mb", "communicated_mb")):
        chosen = runs[runs["variant"] == "tuned"]
        chosen = chosen[chosen["partition"] == "dirichlet-0.6"] if key == FIRST else chosen
        means = chosen.groupby("method")[column].mean()
        orders = []
        for _ in range(2):
            page.click(f"[data-sort='{key}']")
            settled(page)
            orders.append(methods(entries(page, "#board")))
            shown = [means[method] for method in orders[-1]]
            direction = page.locator(f"th:has([data-sort='{key}'])").get_attribute("aria-sort")
            assert shown == sorted(shown, reverse=direction == "descending")
        assert orders[0] != orders[1]


def test_mean_ranks_and_diverged_runs(page: "sync_api.Page") -> None:
    page.check("input[value=untuned]")
    settled(page)
    assert methods(entries(page, "#board")) == ["fedsam", OWN, "scaffold", "fedavg"]
    ranks = page.locator("#board tbody tr td:nth-child(2)").all_inner_texts()
    assert ranks == ["1.0", "2.0", "3.0", "4.0"]
    assert "1 diverged" in page.locator("#board tr[data-entry='fedavg untuned']").inner_text()


def test_check_boxes_and_text_choose_methods(page: "sync_api.Page") -> None:
    places = ("#board", "#budget-list", "#methods")
    assert all(set(entries(page, place)) == TUNED for place in places)
    page.locator("#methods li[data-entry='fedsam tuned'] input").uncheck()
    settled(page)
    rest = TUNED - {"fedsam tuned"}
    assert set(entries(page, "#board")) == set(entries(page, "#budget-list")) == rest
    for chart in ("curves-chart", "tradeoff-chart", "flatness-chart"):
        assert curves_of(page, chart) == rest
    page.fill("#filter", "SCAFF")
    settled(page)
    assert entries(page, "#methods")[0] == "scaffold tuned"
    assert entries(page, "#board") == ["scaffold tuned"]
    page.fill("#filter", "")
    page.click("#show-all")
    page.check("input[value=all]")
    settled(page)
    assert len(entries(page, "#board")) == 2 * len(FINAL)
    page.click("#show-none")
    settled(page)
    assert entries(page, "#board") == []
    assert curves_of(page) == set()


def test_a_highlighted_method_has_a_band(page: "sync_api.Page") -> None:
    bands = "document.getElementById('curves-chart').data.filter((t) => t.fill === 'tonexty').map((t) => t.name)"
    assert len(page.evaluate(bands)) == 1, "the own method, from the start"
    page.click(".pin[data-entry='fedsam tuned']")
    settled(page)
    assert "band of FedSAM" in page.evaluate(bands)
    [line] = page.evaluate(
        "document.getElementById('curves-chart').data.filter((t) => t.meta?.entry === 'fedsam tuned')"
    )
    _, curves = frames()
    chosen = curves.query("method == 'fedsam' and variant == 'tuned' and partition == 'dirichlet-0.6'")
    np.testing.assert_allclose(line["y"], chosen.groupby("round")["test_accuracy"].mean(), rtol=1e-3)


def test_the_slider_changes_the_order(page: "sync_api.Page") -> None:
    _, curves = frames()
    curves = curves.query("variant == 'tuned' and partition == 'dirichlet-0.6'")
    for axis, share in (("round", 0.2), ("gradients", 0.1), ("communicated_mb", 0.3)):
        page.locator("#budget-choices select").nth(1).select_option(axis)
        settled(page)
        orders = []
        for part in (1.0, share):
            page.evaluate(
                "(part) => { const slider = document.getElementById('budget'); slider.value = part * slider.max;"
                " slider.dispatchEvent(new Event('input')); }",
                part,
            )
            within = curves[curves[axis] <= part * curves[axis].max()]
            last = within.groupby(["method", "seed"])["test_accuracy"].last().groupby("method").mean()
            orders.append(methods(entries(page, "#budget-list")))
            assert orders[-1] == last.sort_values(ascending=False).index.tolist()
            shown = page.locator("#budget-list .number").all_inner_texts()
            assert [float(text.split()[0]) for text in shown] == pytest.approx(sorted(last, reverse=True), abs=0.02)
        assert orders[0] != orders[1]


def test_a_number_shows_its_settings_command_and_provenance(page: "sync_api.Page") -> None:
    page.locator("#board tr[data-entry='fedsam tuned'] button.number").first.click()
    text = page.locator("#details").inner_text()
    for words in ("FedSAM", "rho: 0.05", "lr: 0.1", "torch", "0.1.0+0123456789abcdef", "cpu (x86_64)", "tuning trials"):
        assert words in text
    runs, _ = frames()
    chosen = runs.query("method == 'fedsam' and variant == 'tuned' and partition == 'dirichlet-0.6'")
    assert all(identity in text for identity in chosen["identity"])
    assert page.locator("#details pre").all_inner_texts() == [
        "fedflat run 'mine/it'\\''s.yaml' digits/dirichlet-0.6/4-of-20/fedsam"
    ]
    page.keyboard.press("Escape")
    assert page.locator("#details").is_hidden()


def test_the_keyboard_reaches_everything(page: "sync_api.Page") -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.locator("#board [data-sort=title]").focus()
    page.keyboard.press("Enter")
    settled(page)
    assert page.evaluate("document.activeElement.dataset.sort") == "title", "the focus stays after sorting"
    assert page.locator("#board button.number[tabindex='0']").count() == 1, "one stop of Tab for all numbers"
    page.locator("#board button.number[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    row, column = page.evaluate(
        "(() => { const cell = document.activeElement.closest('td');"
        " return [cell.parentElement.rowIndex, cell.cellIndex]; })()"
    )
    assert [row, column] == [3, 3], "two rows of heads, then the second row; two columns before the first number"
    page.keyboard.press("Enter")
    assert page.locator("#details").is_visible()
    page.keyboard.press("Escape")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter((one) => !(one.textContent.trim()"
        " || one.getAttribute('aria-label') || one.labels?.length)).length"
    )
    assert unnamed == 0


def downloaded(page: "sync_api.Page", name: str) -> pd.DataFrame:
    """The CSV file behind a button."""
    with page.expect_download() as download:
        page.click(f"#csv-{name}")
    assert download.value.suggested_filename == f"{name}.csv"
    return pd.read_csv(io.BytesIO(Path(download.value.path()).read_bytes()), dtype={"identity": str})


def test_the_data_can_be_downloaded(page: "sync_api.Page") -> None:
    runs, curves = frames()
    found = downloaded(page, "runs")
    found["tuning"] = found["tuning"].astype(object).fillna("")  # CSV has no empty texts
    pd.testing.assert_frame_equal(found, runs, check_dtype=False, rtol=1e-5)
    found = downloaded(page, "curves")
    assert set(found) == set(curves)
    expected = curves[list(found)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-3)
    board = downloaded(page, "leaderboard")
    assert board["method"].tolist() == methods(entries(page, "#board"))
    chosen = runs.query("variant == 'tuned' and partition == 'dirichlet-0.6'")
    np.testing.assert_allclose(
        board[FIRST], chosen.groupby("method")["test_accuracy"].mean()[board["method"]], rtol=1e-5
    )


def test_both_surfaces_turn_together(page: "sync_api.Page") -> None:
    page.locator("#surfaces").scroll_into_view_if_needed()
    page.wait_for_function("document.getElementById('surface-right')._fullLayout?.scene?.camera")
    titles = "['left', 'right'].map((side) => document.getElementById(`surface-${side}`).data[0].z.flat().length)"
    assert page.evaluate(titles) == [49, 49]
    assert page.locator("#surfaces-choices select").first.input_value() == f"{OWN} tuned"
    before = page.evaluate("document.getElementById('surface-right')._fullLayout.scene.camera.eye.x")
    page.get_by_label("Turn right").click()
    page.wait_for_function(
        "(before) => document.getElementById('surface-right')._fullLayout.scene.camera.eye.x !== before", arg=before
    )
    eyes = [
        page.evaluate(f"document.getElementById('surface-{side}')._fullLayout.scene.camera.eye.x")
        for side in ("left", "right")
    ]
    assert eyes[0] == pytest.approx(eyes[1])


def test_the_front_and_the_rank_correlation(page: "sync_api.Page") -> None:
    assert "FedSAM" in page.locator("#tradeoff-front").inner_text()
    page.locator("#tradeoff-choices select").nth(1).select_option("gradients")
    settled(page)
    front = page.locator("#tradeoff-front").inner_text()
    assert front == "On the Pareto front: SCAFFOLD; FedSAM."
    assert page.locator("#flatness-tau").inner_text() == "Kendall's τ of the 4 points: −1.00."


def test_segmentation_is_judged_by_its_miou(browser: "sync_api.Browser", tmp_path: Path) -> None:
    (file := tmp_path / "page.html").write_text(with_segmentation().page(), encoding="utf-8")
    page = visit(browser, file, viewport={"width": 1280, "height": 900})
    assert page.locator("#board .group").all_inner_texts() == ["Test accuracy (%)", "Test mIoU (%)"]
    assert page.locator("#budgets-title").inner_text() == "Accuracy or mIoU at a budget"
    scenes = with_segmentation().runs.query("variant == 'tuned' and partition == 'dirichlet-0.1'")
    means = scenes.groupby("method")["test_miou"].mean().sort_values(ascending=False)
    page.click("[data-sort='digits/dirichlet-0.1/4-of-20']")
    page.locator("#budget-choices select").first.select_option("digits/dirichlet-0.1/4-of-20")
    settled(page)
    assert methods(entries(page, "#board")) == methods(entries(page, "#budget-list")) == means.index.tolist()
    for chart in ("curves-chart", "tradeoff-chart", "flatness-chart"):
        assert page.evaluate(f"document.getElementById('{chart}').layout.yaxis.title.text") == "Test mIoU (%)"
        last = page.evaluate(f"document.getElementById('{chart}').data.find((t) => t.meta?.entry == 'fedavg tuned').y")
        assert last[-1] == pytest.approx(means["fedavg"], rel=1e-3)
    page.locator("#budget-list .number").first.click()
    assert f"Test mIoU (%): {means.iloc[0]:.2f}" in page.locator("#details").inner_text()
    assert not [line for line in page.said if line.startswith("error")]
    page.close()


def test_the_theme(browser: "sync_api.Browser", file: Path, page: "sync_api.Page") -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    settled(page)
    assert page.evaluate(background) == "rgb(23, 25, 28)" != light
    own = "document.getElementById('curves-chart').data.find((t) => t.meta?.entry === 'mine tuned').line.color"
    assert page.evaluate(own) == "#ffffff", "a black line would not be seen"
    dark = visit(browser, file, color_scheme="dark")
    assert dark.evaluate(background) == "rgb(23, 25, 28)"
    dark.close()


def test_a_phone_scrolls_one_way(browser: "sync_api.Browser", file: Path) -> None:
    phone = visit(browser, file, viewport={"width": 375, "height": 800}, has_touch=True, is_mobile=True)
    assert phone.evaluate("document.documentElement.scrollWidth") == 375
    assert not phone.locator("#methods").is_visible()
    phone.locator("#panel summary").tap()
    assert phone.locator("#methods").is_visible()
    phone.close()


def test_it_prints_on_paper(page: "sync_api.Page") -> None:
    page.click("#theme")
    page.evaluate(
        "window.addEventListener('beforeprint', () => { window.printed = document.documentElement.dataset.theme })"
    )
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.evaluate("window.printed") == "light"
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    page.emulate_media(media="print")
    assert page.locator("#board").is_visible()
    assert not page.locator("#filter").is_visible()
