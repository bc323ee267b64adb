// Accuracy, or mIoU, at a budget of rounds, gradients or traffic: the slider sorts the methods anew.

const budget = { axis: "round", share: 1 };
const slider = document.getElementById("budget");
const STEPS = 200;

/** The largest amount that a run of the setting spends. */
function mostSpent(entries) {
  const spent = entries.flatMap((entry) => entry.runs[state.setting] ?? []).map((run) => CURVES.get(run)?.[budget.axis].at(-1) ?? 0);
  return Math.max(0, ...spent);
}

/** The score of a run's last evaluation within an amount; null before the first one. */
function scoreAt(run, amount) {
  const points = CURVES.get(run);
  if (!points) return null;
  const last = points[budget.axis].findLastIndex((spent) => spent !== null && spent <= amount * (1 + 1e-9));
  return last < 0 ? null : points[SCORES[run.setting]][last];
}

function budgetRows(amount) {
  return shownEntries()
    .filter((entry) => entry.runs[state.setting])
    .map((entry) => {
      const runs = entry.runs[state.setting];
      const all = runs.map((run) => scoreAt(run, amount));
      const values = known(all);
      const whole = values.length === runs.length;
      return { entry, runs, value: whole ? mean(values) : null, spread: whole ? spreadOf(values) : null };
    })
    .sort((one, other) => (other.value ?? -1) - (one.value ?? -1) || one.entry.title.localeCompare(other.entry.title));
}

function budgetItem(row, rank, low, high) {
  const { entry, value, spread } = row;
  const place = (at) => `${(100 * (Math.min(Math.max(at, low), high) - low)) / (high - low)}%`;
  const track = element("span", { class: "track", "aria-hidden": "true" });
  if (value !== null) {
    const half = spread ?? 0;
    track.append(
      element("span", { class: "range", style: `left: ${place(value - half)}; right: calc(100% - ${place(value + half)}); --light: ${entry.look.colour}; --dark: ${entry.look.dark}` }),
      element("span", { class: "dot", style: `left: ${place(value)}` }, swatch(entry, false))
    );
  }
  const text = value === null ? MISSING : fixed(value, 2) + (spread === null ? "" : ` ± ${fixed(spread, 2)}`);
  return element(
    "li", { "data-entry": entry.key, class: isOwn(entry) ? "own" : null },
    element("span", { class: "place" }, value === null ? "" : String(rank)),
    element("span", { class: "name" }, entry.title), track,
    element("button", { type: "button", class: "number", onclick: () => showDetails(entry, row.runs, SCORES[state.setting]) }, text)
  );
}

function showBudget() {
  const most = mostSpent(shownEntries());
  const amount = budget.share * most;
  const words = budget.axis === "round" ? `${Math.floor(amount)} rounds` : `${short(amount)} ${UNITS[budget.axis]}`;
  slider.setAttribute("aria-valuetext", words);
  document.getElementById("budget-value").textContent = words;
  const rows = budgetRows(amount);
  const values = rows.filter((row) => row.value !== null);
  const low = Math.min(...values.map((row) => row.value - (row.spread ?? 0)));
  const high = Math.max(...values.map((row) => row.value + (row.spread ?? 0)));
  const margin = 0.03 * (high - low) || 1;
  const [from, to] = [low - margin, high + margin];
  document.getElementById("budget-list").replaceChildren(...rows.map((row, index) => budgetItem(row, index + 1, from, to)));
  document.getElementById("budget-scale").textContent = values.length
    ? `The scale runs from ${fixed(from, 1)} to ${fixed(to, 1)} %.`
    : "No method has been evaluated within this budget.";
}

const UNITS = { gradients: "gradients", communicated_mb: "MB" };

function buildBudget() {
  slider.max = STEPS;
  slider.value = STEPS;
  slider.addEventListener("input", () => {
    budget.share = slider.value / STEPS;
    showBudget();
  });
  document.getElementById("budget-choices").prepend(
    settingSelect(),
    select("Budget of", AXES.map((name) => [name, NAMES[name]]), "round", (value) => {
      budget.axis = value;
      changed();
    })
  );
}

onChange(showBudget);
