// What the reader has chosen, and the functions that show a change.

const isOwn = (entry) => entry.method === DATA.own;

const isTuned = (entry) => entry.variant === "tuned";

/** The values at the start: those of the own method, else tuned ones. */
function firstVariant() {
  const own = ENTRIES.filter(isOwn);
  const all = own.length ? own : ENTRIES;
  return (all.find(isTuned) ?? all[0]).variant;
}

const state = {
  variant: VARIANTS.length > 1 ? firstVariant() : "all",
  settings: new Set(SETTINGS),
  setting: SETTINGS[0],
  hidden: new Set(),
  text: "",
  pinned: new Set(),
  spread: "deviation",
};

const showsBoth = () => state.variant === "all" && VARIANTS.length > 1;

const shows = [];
let scheduled = false;

/** Call a function at the start and after each change. */
const onChange = (show) => shows.push(show);

/** Show a change, once for all changes before the next frame. */
function changed() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const show of shows) show();
  });
}

const matches = (entry) =>
  `${entry.title} ${entry.method}`.toLowerCase().includes(state.text.trim().toLowerCase());

const ofVariant = (entry) => state.variant === "all" || entry.variant === state.variant;

/** The entries that the reader wants to see; own methods and pinned ones last, which draws them on top. */
function shownEntries() {
  const onTop = (entry) => (entry.look.own || entry.method === DATA.own ? 2 : 0) + (state.pinned.has(entry.key) ? 1 : 0);
  return ENTRIES.filter((entry) => ofVariant(entry) && matches(entry) && !state.hidden.has(entry.key)).sort(
    (one, other) => onTop(one) - onTop(other)
  );
}

const shownSettings = () => SETTINGS.filter((setting) => state.settings.has(setting));

/** Half the width of what stands behind ±, as the reader has chosen. */
const spreadOf = (values) =>
  state.spread === "deviation" ? deviation(values) : halfInterval(values, DATA.quantiles);
