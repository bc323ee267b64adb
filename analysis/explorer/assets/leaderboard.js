// The leaderboard: one row per method, sorted by a click on a head. Arrow keys move between the numbers.

const GROUPS = {
  score: { title: DATA.score, on: true },
  cost: { title: "Cost", on: true },
  gap: { title: "Generalisation gap", on: false },
  flatness: { title: "Flatness", on: FLATNESS.length > 0 },
  targets: { title: "Rounds to a target", on: false },
};

const sorting = { column: "rank", descending: false };
const board = document.getElementById("board");

/** The columns that are shown: a key, a title, the direction of better values, and the cell of each entry. */
function boardColumns() {
  const settings = shownSettings();
  const meanOf = (column, better, marksBest = false) => ({
    key: column, title: NAMES[column], better, marksBest,
    cell: (entry) => numberCell(runsIn(entry, settings), column, marksBest),
  });
  const columns = [];
  if (GROUPS.score.on) {
    columns.push(
      ...settings.map((setting) => ({
        key: setting, title: DATA.settings[setting], group: NAMES[SCORES[setting]], better: 1, marksBest: true,
        cell: (entry) => numberCell(entry.runs[setting] ?? [], SCORES[setting], true),
      }))
    );
  }
  if (GROUPS.cost.on) columns.push(...COSTS.map((name) => meanOf(name, -1)));
  if (GROUPS.gap.on && hasColumn("generalisation_gap")) columns.push(meanOf("generalisation_gap", -1));
  if (GROUPS.flatness.on) columns.push(...FLATNESS.map((name) => meanOf(name, -1, true)));
  if (GROUPS.targets.on) columns.push(...TARGETS.map((name) => meanOf(name, -1)));
  return columns;
}

/** The mean of a column over runs, as a value and as text. */
function numberCell(runs, column, withSpread) {
  const values = known(runs.map((run) => run[column]));
  const value = mean(values);
  const spread = withSpread && new Set(runs.map((run) => run.setting)).size < 2 ? spreadOf(values) : null;
  const lost = isScore(column) ? runs.filter(diverged).length : 0;
  const partly = column.startsWith("rounds_to_") && value !== null && values.length < runs.length;
  const notes = [lost ? `${lost} diverged` : "", partly ? `${values.length} of ${runs.length}` : ""].filter(Boolean);
  return {
    value, lost, runs, column,
    text: valueText(column, value) + (spread === null ? "" : ` ± ${valueText(column, spread)}`),
    note: notes.join(", "),
  };
}

/** Mean ranks over the shown settings, among the shown entries; null for an entry without runs in one of them. */
function meanRanks(entries) {
  const settings = shownSettings();
  const found = new Map(entries.map((entry) => [entry, []]));
  for (const setting of settings) {
    const cells = new Map(entries.map((entry) => [entry, numberCell(entry.runs[setting] ?? [], SCORES[setting], false)]));
    const ranked = entries.filter((entry) => cells.get(entry).runs.length);
    const order = (one, other) => {
      const [a, b] = [cells.get(one), cells.get(other)];
      return a.lost - b.lost || (b.value ?? -Infinity) - (a.value ?? -Infinity) || 0;
    };
    for (const [entry, rank] of ranks(ranked, order)) found.get(entry).push(rank);
  }
  return new Map([...found].map(([entry, all]) => [entry, settings.length && all.length === settings.length ? mean(all) : null]));
}

function compareRows(one, other) {
  const [a, b] = [one.keys[sorting.column], other.keys[sorting.column]];
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return sorting.descending ? -order : order;
}

function head(key, title, better, rows = 1) {
  const active = sorting.column === key;
  const arrow = active ? (sorting.descending ? "▼" : "▲") : "";
  const button = element(
    "button",
    {
      type: "button", "data-sort": key,
      onclick: () => {
        sorting.descending = active ? !sorting.descending : better > 0;
        sorting.column = key;
        changed();
      },
    },
    title, element("span", { class: "arrow", "aria-hidden": "true" }, arrow)
  );
  const sorted = active ? (sorting.descending ? "descending" : "ascending") : null;
  return element("th", { scope: "col", rowspan: rows, "aria-sort": sorted, class: key === "title" ? "name" : null }, button);
}

function boardHead(columns) {
  const grouped = columns.filter((column) => column.group);
  const top = element("tr", {}, head("title", "Method", -1, grouped.length ? 2 : 1), head("rank", "Rank of means", -1, grouped.length ? 2 : 1));
  const groups = [];
  for (const { group } of grouped) {
    if (groups.at(-1)?.title === group) groups.at(-1).columns += 1;
    else groups.push({ title: group, columns: 1 });
  }
  for (const { title, columns: width } of groups) top.append(element("th", { scope: "colgroup", colspan: width, class: "group" }, title));
  for (const column of columns.filter((one) => !one.group)) top.append(head(column.key, column.title, column.better, grouped.length ? 2 : 1));
  const below = grouped.length ? [element("tr", {}, ...grouped.map((column) => head(column.key, column.title, column.better)))] : [];
  return element("thead", {}, top, ...below);
}

function boardRow(row, columns, best) {
  const cells = columns.map((column) => {
    const cell = row.cells.get(column.key);
    if (cell.value === null && !cell.lost) return element("td", {}, MISSING);
    const isBest = column.marksBest && best.get(column.key) === cell.value && !cell.lost;
    const button = element(
      "button",
      { type: "button", class: isBest ? "number best" : "number", tabindex: -1, onclick: () => showDetails(row.entry, cell.runs, cell.column) },
      cell.text, cell.note ? element("small", {}, ` ${cell.note}`) : null
    );
    return element("td", {}, button);
  });
  const name = element("th", { scope: "row", class: "name" }, swatch(row.entry), ` ${row.entry.title}`);
  const classes = [isOwn(row.entry) ? "own" : "", state.pinned.has(row.entry.key) ? "pinned" : ""].join(" ").trim();
  return element(
    "tr", { "data-entry": row.entry.key, class: classes || null },
    name, element("td", {}, row.rank === null ? MISSING : fixed(row.rank, 1)), ...cells
  );
}

function boardRows() {
  const entries = shownEntries(), columns = boardColumns(), byRank = meanRanks(entries);
  const rows = entries.map((entry) => {
    const cells = new Map(columns.map((column) => [column.key, column.cell(entry)]));
    const keys = { title: entry.title.toLowerCase(), rank: byRank.get(entry) };
    for (const [key, cell] of cells) keys[key] = cell.value;
    return { entry, cells, keys, rank: byRank.get(entry) };
  });
  if (!(sorting.column === "title" || sorting.column === "rank" || columns.some((column) => column.key === sorting.column))) {
    Object.assign(sorting, { column: "rank", descending: false });
  }
  return { columns, rows: rows.sort(compareRows) };
}

function showBoard() {
  const { columns, rows } = boardRows();
  const best = new Map(
    columns.map((column) => {
      const values = known(rows.map((row) => row.cells.get(column.key)).filter((cell) => !cell.lost).map((cell) => cell.value));
      return [column.key, values.length ? (column.better > 0 ? Math.max(...values) : Math.min(...values)) : null];
    })
  );
  const focused = board.contains(document.activeElement) ? document.activeElement.dataset.sort : undefined;
  board.replaceChildren(boardHead(columns), element("tbody", {}, ...rows.map((row) => boardRow(row, columns, best))));
  board.querySelector("button.number")?.setAttribute("tabindex", 0);
  if (focused) board.querySelector(`[data-sort="${CSS.escape(focused)}"]`)?.focus();
  document.getElementById("board-spread").textContent = SPREADS[state.spread];
}

board.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  const from = event.target.closest("td");
  if (!step || !from) return;
  event.preventDefault();
  const rows = [...board.tBodies[0].rows];
  let row = rows.indexOf(from.parentElement), column = from.cellIndex;
  for (;;) {
    row += step[0];
    column += step[1];
    const cell = rows[row]?.cells[column];
    if (!cell) return;
    const button = cell.querySelector("button.number");
    if (button) {
      moveFocus(button);
      return;
    }
  }
});

board.addEventListener("focusin", (event) => {
  if (event.target.matches("button.number")) moveFocus(event.target);
});

/** Make a number the one that the Tab key reaches, and focus it. */
function moveFocus(button) {
  for (const other of board.querySelectorAll("button.number[tabindex='0']")) other.tabIndex = -1;
  button.tabIndex = 0;
  if (document.activeElement !== button) button.focus();
}

function buildBoard() {
  const choices = document.getElementById("board-choices");
  const empty = { gap: !hasColumn("generalisation_gap"), flatness: !FLATNESS.length, targets: !TARGETS.length, cost: !COSTS.length };
  for (const [key, group] of Object.entries(GROUPS)) {
    if (empty[key]) continue;
    choices.append(
      check(group.title, group.on, (on) => {
        group.on = on;
        changed();
      })
    );
  }
  choices.append(
    select("±", [["deviation", "standard deviation"], ["interval", "95 % interval"]], state.spread, (value) => {
      state.spread = value;
      changed();
    })
  );
}

onChange(showBoard);
