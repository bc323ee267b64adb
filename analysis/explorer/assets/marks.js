// Small parts of the page: elements, and the line and marker of a method.

/** An element with attributes, and children that are elements or texts. `on...` attributes are listeners. */
function element(name, attributes = {}, ...children) {
  const made = name === "svg" || element.svg.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
element.svg = new Set(["line", "path", "g"]);

const SHAPES = {
  circle: "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
  square: "M-3.5-3.5H3.5V3.5H-3.5Z",
  diamond: "M0-5L5 0L0 5L-5 0Z",
  "diamond-tall": "M0-5L3 0L0 5L-3 0Z",
  "triangle-down": "M-4.5-3.5H4.5L0 4.5Z",
  "triangle-up": "M-4.5 3.5H4.5L0-4.5Z",
  "triangle-left": "M3.5-4.5V4.5L-4.5 0Z",
  "triangle-right": "M-3.5-4.5V4.5L4.5 0Z",
  star: "M0-5L1.2-1.6H4.8L1.9.6L3 4L0 2L-3 4L-1.9.6L-4.8-1.6H-1.2Z",
  pentagon: "M0-4.5L4.3-1.4L2.6 3.6H-2.6L-4.3-1.4Z",
  hexagon: "M0-4.5L3.9-2.2V2.2L0 4.5L-3.9 2.2V-2.2Z",
  hexagon2: "M-4.5 0L-2.2-3.9H2.2L4.5 0L2.2 3.9H-2.2Z",
  octagon: "M-1.7-4.2H1.7L4.2-1.7V1.7L1.7 4.2H-1.7L-4.2 1.7V-1.7Z",
  cross: "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
  x: "M-4-2.6L-2.6-4L0-1.4L2.6-4L4-2.6L1.4 0L4 2.6L2.6 4L0 1.4L-2.6 4L-4 2.6L-1.4 0Z",
};

/** Untuned values have open markers where tuned ones are shown, too. */
const isOpen = (entry) => showsBoth() && !isTuned(entry);

/** A method's line and marker; the colours of both themes are in its style. */
function swatch(entry, withLine = true) {
  const { look } = entry;
  const stroke = look.own ? 3 : 2;
  const line = element("line", {
    x1: 0, x2: 34, y1: 7, y2: 7, stroke: "currentColor", "stroke-width": stroke,
    "stroke-dasharray": look.dashes.map((length) => 2 * length).join(" ") || null,
  });
  const marker = element(
    "g", { transform: `translate(${withLine ? 17 : 7} 7)` },
    element("path", {
      d: SHAPES[look.symbol], stroke: "currentColor", "stroke-width": 1.5,
      fill: isOpen(entry) ? "var(--paper)" : "currentColor",
    })
  );
  return element(
    "svg",
    {
      class: "swatch", width: withLine ? 34 : 14, height: 14, "aria-hidden": "true",
      style: `--light: ${look.colour}; --dark: ${look.dark}`,
    },
    ...(withLine ? [line, marker] : [marker])
  );
}

/** A select with options [value, text]. */
function select(label, options, value, onchange) {
  const made = element(
    "select", { onchange: () => onchange(made.value) },
    ...options.map(([key, text]) => element("option", { value: key }, text))
  );
  made.value = value;
  return element("label", { class: "choice" }, `${label} `, made);
}
