// The panel with the choice of methods and settings, which is also the legend of all charts.

function check(label, checked, onchange, ...extra) {
  const box = element("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  return element("label", { class: "check" }, box, ...extra, element("span", {}, label));
}

function toggleIn(set, key, isIn) {
  if (isIn) set.add(key);
  else set.delete(key);
  changed();
}

function pinButton(entry) {
  const pinned = state.pinned.has(entry.key);
  return element(
    "button",
    {
      type: "button", class: "pin", "aria-pressed": String(pinned), "data-entry": entry.key,
      "aria-label": `Highlight ${entry.title}`, title: "Highlight: bold line with its spread",
      onclick: () => toggleIn(state.pinned, entry.key, !state.pinned.has(entry.key)),
    },
    "★"
  );
}

const methodRows = new Map(
  ENTRIES.map((entry) => {
    const row = check(entry.title, true, (on) => toggleIn(state.hidden, entry.key, !on), swatch(entry));
    const item = element("li", { "data-entry": entry.key, class: isOwn(entry) ? "own" : null }, row, pinButton(entry));
    return [entry, item];
  })
);

function showMethodRows() {
  for (const [entry, item] of methodRows) {
    item.hidden = !(ofVariant(entry) && matches(entry));
    item.querySelector(".swatch").replaceWith(swatch(entry));
    item.querySelector(".check span").textContent = entry.title;
    item.querySelector("input").checked = !state.hidden.has(entry.key);
    item.querySelector(".pin").setAttribute("aria-pressed", String(state.pinned.has(entry.key)));
  }
  const count = shownEntries().length;
  document.getElementById("method-count").textContent = `${count} of ${ENTRIES.filter(ofVariant).length}`;
}

function buildControls() {
  document.getElementById("methods").append(...methodRows.values());
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    state.text = filter.value;
    changed();
  });
  for (const [id, isHidden] of [["show-all", false], ["show-none", true]]) {
    document.getElementById(id).addEventListener("click", () => {
      for (const entry of ENTRIES.filter((one) => ofVariant(one) && matches(one))) {
        toggleIn(state.hidden, entry.key, isHidden);
      }
    });
  }
  const settings = document.getElementById("settings");
  for (const setting of SETTINGS) {
    settings.append(check(DATA.settings[setting], true, (on) => toggleIn(state.settings, setting, on)));
  }
  settings.hidden = SETTINGS.length < 2;
  const variants = document.getElementById("variants");
  variants.hidden = VARIANTS.length < 2;
  for (const [variant, text] of [["all", "both"], ...VARIANTS.map((one) => [one, one])]) {
    const radio = element("input", {
      type: "radio", name: "variant", value: variant, checked: state.variant === variant,
      onchange: () => {
        state.variant = variant;
        changed();
      },
    });
    variants.append(element("label", { class: "check" }, radio, element("span", {}, text)));
  }
}

/** The choice of the setting that all charts show. */
function settingSelect() {
  const label = select("Setting", SETTINGS.map((key) => [key, DATA.settings[key]]), state.setting, (value) => {
    state.setting = value;
    changed();
  });
  onChange(() => {
    label.querySelector("select").value = state.setting;
  });
  label.hidden = SETTINGS.length < 2;
  return label;
}

onChange(showMethodRows);
