// What all charts share: Plotly's layout in the colours of the theme, and the look of a method.

const theme = () => document.documentElement.dataset.theme;

const colourOf = (entry) => (theme() === "dark" ? entry.look.dark : entry.look.colour);

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const faded = (hex, alpha) => {
  const [red, green, blue] = [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16));
  return `rgba(${red},${green},${blue},${alpha})`;
};

const CONFIG = {
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};

function axis(title, extra = {}) {
  return {
    title: { text: title, standoff: 8 }, automargin: true, gridcolor: css("--line"), linecolor: css("--line"),
    zeroline: false, tickcolor: css("--line"), exponentformat: "SI", ...extra,
  };
}

function layout(xTitle, yTitle, extra = {}) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: css("--ink") },
    margin: { l: 56, r: 12, t: 28, b: 48 }, showlegend: false, hovermode: "closest",
    hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--soft"), font: { color: css("--ink") }, align: "left" },
    xaxis: axis(xTitle, extra.xaxis), yaxis: axis(yTitle, extra.yaxis), shapes: extra.shapes ?? [],
  };
}

/** A text that Plotly shows as it is: it reads some markup. */
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

const dashOf = (entry, width) =>
  entry.look.dashes.length ? entry.look.dashes.map((length) => `${length * width}px`).join(",") : "solid";

function markerOf(entry, size = 10) {
  const symbol = entry.look.symbol + (isOpen(entry) ? "-open" : "");
  return { symbol, size: isOwn(entry) ? size + 3 : size, color: colourOf(entry), line: { width: isOpen(entry) ? 2 : 1, color: isOpen(entry) ? colourOf(entry) : css("--paper") } };
}

/** Draw a chart; a click on a point opens its details. `behind`: by trace, the runs and the column of its points. */
function draw(id, traces, chartLayout) {
  const place = document.getElementById(id);
  Plotly.react(place, traces, chartLayout, CONFIG);
  if (!place.dataset.listens) {
    place.dataset.listens = "true";
    place.on("plotly_click", (event) => {
      const { data } = event.points[0];
      if (data.meta) showDetails(...data.meta.behind);
    });
  }
}

/** The seeds' mean and spread at each of some places; places without any value are left out. */
function band(sequences) {
  return sequences.map(known).map((values) => ({ centre: mean(values), spread: values.length > 1 ? spreadOf(values) : null }));
}
