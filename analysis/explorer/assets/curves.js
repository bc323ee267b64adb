// Convergence: the mean over seeds of each method, with a band for the highlighted ones.

const curveChoice = { x: "round", y: "score" };

/** Points of the mean curve of runs: rounds, and the mean cost of each. Runs that ended early are left out after their end. */
function meanCurve(runs, x, y) {
  const curves = runs.map((run) => CURVES.get(run)).filter(Boolean);
  const rounds = [...new Set(curves.flatMap((one) => one.round))].sort((a, b) => a - b);
  const at = curves.map((one) => new Map(one.round.map((round, index) => [round, index])));
  const column = (name) => rounds.map((round) => curves.map((one, number) => {
    const index = at[number].get(round);
    return index === undefined ? null : one[name][index];
  }));
  return { rounds, x: column(x).map((values) => mean(known(values))), y: band(column(y)) };
}

function curveTraces(entry) {
  const runs = entry.runs[state.setting] ?? [];
  if (!runs.length) return [];
  const { x } = curveChoice, y = inSetting(curveChoice.y, state.setting);
  const points = meanCurve(runs, x, y);
  const pinned = state.pinned.has(entry.key);
  const width = pinned || isOwn(entry) ? 3 : 1.8;
  const colour = colourOf(entry);
  const line = {
    type: "scatter", x: points.x, y: points.y.map((point) => point.centre), name: escaped(entry.title),
    mode: "lines+markers",
    line: { color: colour, width, dash: dashOf(entry, width) },
    marker: { ...markerOf(entry, 6), maxdisplayed: 8 },
    customdata: points.rounds.map((round, index) => [round, points.y[index].spread === null ? "" : ` ± ${valueText(y, points.y[index].spread)}`]),
    hovertemplate: `<b>%{fullData.name}</b><br>%{y:.4~g}%{customdata[1]}<br>round %{customdata[0]}${x === "round" ? "" : `<br>${NAMES[x]}: %{x:.3~s}`}<extra></extra>`,
    meta: { behind: [entry, runs, y], entry: entry.key },
  };
  if (!pinned) return [line];
  const spread = points.y.map((point) => point.spread ?? 0);
  const edge = (sign) => points.y.map((point, index) => (point.centre === null ? null : point.centre + sign * spread[index]));
  const hidden = { type: "scatter", mode: "lines", hoverinfo: "skip", line: { width: 0 }, x: points.x };
  return [
    { ...hidden, y: edge(-1) },
    { ...hidden, y: edge(1), fill: "tonexty", fillcolor: faded(colour, 0.2), meta: undefined, name: `band of ${escaped(entry.title)}` },
    line,
  ];
}

function showCurves() {
  const entries = shownEntries();
  const traces = entries.flatMap(curveTraces);
  draw("curves-chart", traces, layout(NAMES[curveChoice.x], NAMES[inSetting(curveChoice.y, state.setting)]));
}

function buildCurves() {
  const choose = (key) => (value) => {
    curveChoice[key] = value;
    changed();
  };
  document.getElementById("curves-choices").append(
    settingSelect(),
    select("x axis", AXES.map((name) => [name, NAMES[name]]), "round", choose("x")),
    select("y axis", ["score", "test_loss", ...METRICS].map((name) => [name, NAMES[name]]), "score", choose("y"))
  );
}

const AXES = ["round", "gradients", "communicated_mb"];

onChange(showCurves);
