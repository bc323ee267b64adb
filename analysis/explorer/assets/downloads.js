// The data of the page as CSV files.

function csvField(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvOf = (heads, rows) => `${[heads, ...rows].map((row) => row.map(csvField).join(",")).join("\n")}\n`;

function runsCsv() {
  const heads = Object.keys(COLUMNS);
  return csvOf(heads, RUNS.map((run) => heads.map((name) => run[name])));
}

const CURVE_IDS = ["dataset", "partition", "participation", "method", "seed", "variant", "identity"];

function curvesCsv() {
  const columns = Object.keys(DATA.curves.pool);
  const rows = RUNS.filter((run) => CURVES.get(run)).flatMap((run) => {
    const points = CURVES.get(run);
    return points.round.map((_, index) => [...CURVE_IDS.map((name) => run[name]), ...columns.map((name) => points[name][index])]);
  });
  return csvOf([...CURVE_IDS, ...columns], rows);
}

/** The leaderboard as it is shown. */
function boardCsv() {
  const { columns, rows } = boardRows();
  const heads = ["method", "variant", "title", "rank_of_means", ...columns.map((column) => column.key)];
  return csvOf(heads, rows.map((row) => [row.entry.method, row.entry.variant, row.entry.look.title, row.rank, ...columns.map((column) => row.cells.get(column.key).value)]));
}

function download(name, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

for (const [id, content] of Object.entries({ runs: runsCsv, curves: curvesCsv, leaderboard: boardCsv })) {
  document.getElementById(`csv-${id}`).addEventListener("click", () => download(`${id}.csv`, content()));
}
