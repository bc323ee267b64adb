// Two charts with a point for each method: accuracy or mIoU against cost with the Pareto front, and flatness against it.

const tradeoff = { x: COSTS.includes("communicated_mb") ? "communicated_mb" : COSTS[0] };
const flat = { x: FLATNESS[0], y: "score", points: "means" };

/** One point for each entry with both values: the means over the runs of the setting. */
function meanPoints(x, y) {
  return shownEntries().flatMap((entry) => {
    const runs = entry.runs[state.setting] ?? [];
    const [xs, ys] = [x, y].map((name) => known(runs.map((run) => run[name])));
    return xs.length && ys.length ? [{ entry, runs, x: mean(xs), y: mean(ys), xs, ys }] : [];
  });
}

function pointTrace(point, x, y, named) {
  const spread = point.ys.length > 1 ? spreadOf(point.ys) : null;
  return {
    type: "scatter", x: [point.x], y: [point.y], name: escaped(point.entry.title),
    mode: named ? "markers+text" : "markers", text: [escaped(point.entry.title)], textposition: "top center", textfont: { size: 11 },
    cliponaxis: false, marker: markerOf(point.entry),
    error_y: { type: "data", array: [spread ?? 0], visible: spread !== null && state.pinned.has(point.entry.key), color: colourOf(point.entry) },
    customdata: [spread === null ? "" : ` ± ${valueText(y, spread)}`],
    hovertemplate: `<b>%{fullData.name}</b><br>${NAMES[y]}: %{y:.4~g}%{customdata}<br>${NAMES[x]}: %{x:.3~s}<extra></extra>`,
    meta: { behind: [point.entry, point.runs, y], entry: point.entry.key },
  };
}

function showTradeoff() {
  const y = SCORES[state.setting];
  const points = meanPoints(tradeoff.x, y).filter((point) => !point.runs.some(diverged));
  const front = paretoFront(points, (point) => point.x, (point) => point.y);
  const dearest = Math.max(...points.map((point) => point.x));
  const line = {
    type: "scatter", mode: "lines", x: [...front.map((point) => point.x), dearest], y: [...front, front.at(-1)].map((point) => point?.y),
    line: { color: css("--soft"), width: 1.5, dash: "dot", shape: "hv" }, hoverinfo: "skip", name: "Pareto front",
  };
  const isNamed = (point) => front.includes(point) || state.pinned.has(point.entry.key) || isOwn(point.entry);
  draw(
    "tradeoff-chart", [line, ...points.map((point) => pointTrace(point, tradeoff.x, y, isNamed(point)))],
    layout(`${NAMES[tradeoff.x]}, whole run`, NAMES[y])
  );
  document.getElementById("tradeoff-front").textContent = front.length
    ? `On the Pareto front: ${front.map((point) => point.entry.title).join("; ")}.`
    : "";
}

/** Every run as a point, by entry. */
function runTrace(point, x, y) {
  const runs = point.runs.filter((run) => run[x] !== null && run[y] !== null);
  return {
    type: "scatter", mode: "markers", x: runs.map((run) => run[x]), y: runs.map((run) => run[y]), name: escaped(point.entry.title),
    marker: { ...markerOf(point.entry, 7), opacity: 0.8 }, customdata: runs.map((run) => run.seed),
    hovertemplate: `<b>%{fullData.name}</b>, seed %{customdata}<br>${NAMES[y]}: %{y:.4~g}<br>${NAMES[x]}: %{x:.3~s}<extra></extra>`,
    meta: { behind: [point.entry, point.runs, y], entry: point.entry.key },
  };
}

function showFlatness() {
  const y = inSetting(flat.y, state.setting);
  const points = meanPoints(flat.x, y);
  const named = (point) => state.pinned.has(point.entry.key) || isOwn(point.entry) || points.length <= 12;
  const traces = points.map((point) => (flat.points === "means" ? pointTrace(point, flat.x, y, named(point)) : runTrace(point, flat.x, y)));
  const pairs = flat.points === "means"
    ? points.map((point) => [point.x, point.y])
    : points.flatMap((point) => point.runs.filter((run) => run[flat.x] !== null && run[y] !== null).map((run) => [run[flat.x], run[y]]));
  const positive = pairs.every(([x]) => x > 0);
  draw("flatness-chart", traces, layout(NAMES[flat.x], NAMES[y], { xaxis: { type: positive ? "log" : "linear" } }));
  const tau = kendall(pairs);
  document.getElementById("flatness-tau").textContent = tau === null
    ? "Too few points for a rank correlation."
    : `Kendall's τ of the ${pairs.length} points: ${fixed(tau, 2)}.`;
}

function buildScatter() {
  document.getElementById("tradeoff-choices").append(
    settingSelect(),
    select("Cost", COSTS.map((name) => [name, NAMES[name]]), tradeoff.x, (value) => {
      tradeoff.x = value;
      changed();
    })
  );
  onChange(showTradeoff);
  if (!FLATNESS.length) return;
  const choose = (key) => (value) => {
    flat[key] = value;
    changed();
  };
  const upward = ["score", ...["generalisation_gap", "test_loss", ...METRICS].filter(hasColumn)];
  document.getElementById("flatness-choices").append(
    settingSelect(),
    select("x axis", FLATNESS.map((name) => [name, NAMES[name]]), flat.x, choose("x")),
    select("y axis", upward.map((name) => [name, NAMES[name]]), flat.y, choose("y")),
    select("Points", [["means", "one per method"], ["runs", "one per run"]], flat.points, choose("points"))
  );
  onChange(showFlatness);
}
