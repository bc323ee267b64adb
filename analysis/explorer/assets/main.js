// The theme, printing, and the start of the page.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const toggle = document.getElementById("theme");
let chosenTheme = null;

function applyTheme(name = chosenTheme ?? (dark.matches ? "dark" : "light")) {
  document.documentElement.dataset.theme = name;
  toggle.setAttribute("aria-pressed", String(name === "dark"));
  changed();
}

toggle.addEventListener("click", () => {
  chosenTheme = theme() === "dark" ? "light" : "dark";
  applyTheme();
});
dark.addEventListener("change", () => applyTheme());

/** Paper is white, and narrower than most windows. */
const PAPER_WIDTH = 680;

function forPaper() {
  document.documentElement.dataset.theme = "light";
  surfacesSeen = DATA.surfaces.length > 0;
  for (const show of shows) show();
  panel.open = true;
  board.style.setProperty("--em", board.scrollWidth / parseFloat(getComputedStyle(board).fontSize));
  for (const chart of flatCharts()) Plotly.relayout(chart, { width: PAPER_WIDTH, height: 360 });
  // Surfaces are drawn in a later frame, too late for the paper: they are made smaller instead.
  const pair = document.querySelector(".pair");
  if (pair) pair.style.cssText = `width: ${pair.offsetWidth}px; zoom: ${Math.min(1, PAPER_WIDTH / pair.offsetWidth)}`;
}

const flatCharts = () => document.querySelectorAll(".chart.js-plotly-plot:not(.pair .chart)");

function forScreen() {
  for (const chart of flatCharts()) Plotly.relayout(chart, { width: null, height: null, autosize: true });
  document.querySelector(".pair")?.removeAttribute("style");
  fitPanel();
  applyTheme();
}

window.addEventListener("beforeprint", forPaper);
window.addEventListener("afterprint", forScreen);

/** On a wide window the choices are open beside the results; on a phone they open by a tap. */
const wide = window.matchMedia("screen and (min-width: 64rem), print");
const panel = document.getElementById("panel");
const fitPanel = () => {
  panel.open = wide.matches;
};
wide.addEventListener("change", fitPanel);
fitPanel();

/** The own method, or the one with the best rank of means. */
function firstPinned() {
  const entries = shownEntries(), byRank = meanRanks(entries);
  const best = Math.min(...known([...byRank.values()]));
  return entries.find(isOwn) ?? entries.find((entry) => byRank.get(entry) === best) ?? entries[0];
}

state.pinned.add(firstPinned().key);
buildControls();
buildBoard();
buildCurves();
buildBudget();
buildScatter();
buildSurfaces();
applyTheme();
requestAnimationFrame(() => {
  document.documentElement.dataset.ready = "true";
});
