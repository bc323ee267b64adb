// The data of the page: runs as objects, and entries, which are the methods with untuned or with tuned values.

const DATA = JSON.parse(document.getElementById("data").textContent);

function decoded(column) {
  return column.values ?? column.codes.map((code) => column.levels[code]);
}

const COLUMNS = Object.fromEntries(
  Object.entries(DATA.runs.columns).map(([name, column]) => [name, decoded(column)])
);

const RUNS = Array.from({ length: DATA.runs.count }, (_, index) => {
  const run = { index };
  for (const [name, values] of Object.entries(COLUMNS)) run[name] = values[index];
  run.setting = `${run.dataset}/${run.partition}/${run.participation}`;
  run.entry = `${run.method} ${run.variant}`;
  return run;
});

/** A run's curve by column, or null. */
function curve(run) {
  if (DATA.curves.runs.round[run.index] === null) return null;
  const columns = Object.entries(DATA.curves.pool);
  return Object.fromEntries(columns.map(([name, pool]) => [name, pool[DATA.curves.runs[name][run.index]]]));
}

const CURVES = new Map(RUNS.map((run) => [run, curve(run)]));
const SETTINGS = Object.keys(DATA.settings);
// Variants are a choice only if a method has two: a tuned method and its untuned rivals are shown together.
const VARIANTS = (() => {
  const all = [...new Set(COLUMNS.variant)], first = new Map();
  COLUMNS.method.forEach((method, k) => first.has(method) || first.set(method, COLUMNS.variant[k]));
  const isChoice = COLUMNS.method.some((method, k) => first.get(method) !== COLUMNS.variant[k]);
  return isChoice ? all : all.slice(0, 1);
})();

/** A method with one kind of values, and its runs by setting. */
function entriesOf(runs) {
  const found = new Map();
  for (const run of runs) {
    if (!found.has(run.entry)) {
      const { entry: key, method, variant } = run, look = DATA.methods[method];
      found.set(key, {
        key, method, variant, look, runs: {},
        get title() {
          return showsBoth() ? `${look.title}, ${variant}` : look.title;
        },
      });
    }
    const bySetting = found.get(run.entry).runs;
    (bySetting[run.setting] ??= []).push(run);
  }
  return [...found.values()];
}

const ENTRIES = entriesOf(RUNS);

/** Runs of an entry in the given settings. */
const runsIn = (entry, settings) => settings.flatMap((setting) => entry.runs[setting] ?? []);

const diverged = (run) => run.outcome === "diverged";

/** Whether any run has a value of this column. */
const hasColumn = (name) => COLUMNS[name]?.some((value) => value !== null) ?? false;

// By setting, the column by which models are judged: the mean IoU for segmentation, else the accuracy.
const SCORES = DATA.scores;
const SCORE_COLUMNS = [...new Set(Object.values(SCORES))];
// Further metrics over rounds.
const METRICS = DATA.metrics;
const isScore = (column) => SCORE_COLUMNS.includes(column);

/** The column that a choice shows in a setting: score stands for the one by which models are judged. */
const inSetting = (name, setting) => (name === "score" ? SCORES[setting] : name);

const NAMES = { ...DATA.names };

NAMES.score = SCORE_COLUMNS.map((column) => NAMES[column]).join(" or ");

const TARGETS = Object.keys(COLUMNS).filter((name) => name.startsWith("rounds_to_") && hasColumn(name));

const COSTS = ["gradients", "communicated_mb", "seconds"].filter(hasColumn);
const FLATNESS = DATA.flatness;
