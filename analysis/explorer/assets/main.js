// The theme, printing, and the first show of the page.

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
  for (const chart of document.querySelectorAll(".chart.js-plotly-plot")) {
    const width = chart.closest(".pair") ? PAPER_WIDTH / 2 : PAPER_WIDTH;
    Plotly.relayout(chart, { width, height: chart.closest(".pair") ? 300 : 380 });
  }
}

function forScreen() {
  for (const chart of document.querySelectorAll(".chart.js-plotly-plot")) {
    Plotly.relayout(chart, { width: null, height: null, autosize: true });
  }
  applyTheme();
}

window.addEventListener("beforeprint", forPaper);
window.addEventListener("afterprint", forScreen);

/** On a wide window the choices are open beside the results; on a phone they open by a tap. */
const wide = window.matchMedia("(min-width: 64rem)");
const panel = document.getElementById("panel");
const fitPanel = () => {
  panel.open = wide.matches;
};
wide.addEventListener("change", fitPanel);
fitPanel();

/** The own method, or the one with the best mean rank. */
function firstPinned() {
  const byRank = meanRanks(ENTRIES);
  const best = Math.min(...known([...byRank.values()]));
  return ENTRIES.find(isOwn) ?? ENTRIES.find((entry) => byRank.get(entry) === best) ?? ENTRIES[0];
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
