// Loss surfaces of two methods side by side, on one scale; turning one turns the other.

const surfaceChoice = { value: "loss", left: null, right: null, name: null, setting: null };
const SIDES = ["left", "right"];
let turning = false;
let surfacesSeen = false;

const surfacesOf = () =>
  DATA.surfaces.filter((one) => one.name === surfaceChoice.name && `${one.dataset}/${one.partition}/${one.participation}` === surfaceChoice.setting);

const surfaceEntry = (surface) => ENTRIES.find((entry) => entry.key === `${surface.method} ${surface.variant}`);

/** The surface of a side: the chosen method, or the first one that the other side does not show. */
function surfaceOf(side) {
  const all = surfacesOf().filter(surfaceEntry);
  const chosen = all.find((one) => surfaceEntry(one).key === surfaceChoice[side]);
  return chosen ?? (side === "left" ? all[0] : all.find((one) => one !== surfaceOf("left"))) ?? all[0];
}

function surfaceTrace(surface, range) {
  return {
    type: "surface", x: surface.b, y: surface.a, z: surface[surfaceChoice.value], cmin: range[0], cmax: range[1],
    colorscale: "Cividis", showscale: false,
    contours: { z: { show: true, usecolormap: true, project: { z: true } } },
    hovertemplate: `%{z:.4~g}<br>directions %{x:.2f}, %{y:.2f}<extra></extra>`,
  };
}

function surfaceLayout(title, range, camera) {
  const axis3d = (text, extra = {}) => ({ title: { text }, color: css("--ink"), gridcolor: css("--line"), zerolinecolor: css("--line"), showbackground: false, ...extra });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", size: 12, color: css("--ink") },
    title: { text: title, font: { size: 15 }, y: 0.97 }, margin: { l: 0, r: 0, t: 36, b: 0 },
    hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--soft"), font: { color: css("--ink") } },
    scene: {
      xaxis: axis3d("direction 2"), yaxis: axis3d("direction 1"),
      zaxis: axis3d(surfaceChoice.value === "loss" ? "loss" : "error (%)", { range }), camera,
      aspectmode: "manual", aspectratio: { x: 1, y: 1, z: 0.8 },
    },
  };
}

function showSurfaces() {
  if (!surfacesSeen) return;
  const shown = SIDES.map(surfaceOf);
  const values = shown.flatMap((surface) => surface[surfaceChoice.value].flat()).filter((value) => value !== null);
  const range = [Math.min(...values), Math.max(...values)];
  shown.forEach((surface, index) => {
    const place = document.getElementById(`surface-${SIDES[index]}`);
    const camera = place._fullLayout?.scene?.camera ?? { eye: { x: 1.65, y: -1.65, z: 1 } };
    const title = escaped(surfaceEntry(surface).title);
    Plotly.react(place, [surfaceTrace(surface, range)], surfaceLayout(title, range, camera), CONFIG);
    place.setAttribute("aria-label", `Surface of ${surfaceEntry(surface).title}`);
    if (!place.dataset.listens) {
      place.dataset.listens = "true";
      place.on("plotly_relayout", (change) => turnOther(index, change["scene.camera"]));
    }
  });
  document.getElementById("surface-definition").textContent = `Shown: ${shown[0].definition}; seed ${shown[0].seed}.`;
}

async function turnOther(index, camera) {
  if (!camera || turning) return;
  turning = true;
  await Plotly.relayout(document.getElementById(`surface-${SIDES[1 - index]}`), { "scene.camera": camera });
  turning = false;
}

/** Turn both surfaces by angles in degrees, for the buttons. */
function turnBoth(degrees) {
  const { eye, ...rest } = document.getElementById("surface-left")._fullLayout.scene.camera;
  const angle = (degrees * Math.PI) / 180;
  const turned = { x: eye.x * Math.cos(angle) - eye.y * Math.sin(angle), y: eye.x * Math.sin(angle) + eye.y * Math.cos(angle), z: eye.z };
  Plotly.relayout(document.getElementById("surface-left"), { "scene.camera": { ...rest, eye: turned } });
}

function surfaceChoices() {
  const choices = document.getElementById("surfaces-choices");
  const names = [...new Set(DATA.surfaces.map((one) => one.name))];
  const settings = SETTINGS.filter((setting) => DATA.surfaces.some((one) => `${one.dataset}/${one.partition}/${one.participation}` === setting));
  surfaceChoice.name = names[0];
  surfaceChoice.setting = settings[0];
  const choose = (key) => (value) => {
    surfaceChoice[key] = value;
    fill();
    showSurfaces();
  };
  const methods = SIDES.map((side) => select(side === "left" ? "Left" : "Right", [], "", choose(side)));
  function fill() {
    methods.forEach((label, index) => {
      const options = surfacesOf().map(surfaceEntry).filter(Boolean);
      const box = label.querySelector("select");
      box.replaceChildren(...options.map((entry) => element("option", { value: entry.key }, entry.title)));
      box.value = surfaceEntry(surfaceOf(SIDES[index])).key;
    });
  }
  const own = surfacesOf().find((one) => one.method === DATA.own);
  if (own) surfaceChoice.left = surfaceEntry(own).key;
  fill();
  if (settings.length > 1) choices.append(select("Setting", settings.map((key) => [key, DATA.settings[key]]), settings[0], choose("setting")));
  if (names.length > 1) choices.append(select("Analysis", names.map((name) => [name, name]), names[0], choose("name")));
  choices.append(
    ...methods,
    select("Height", [["loss", "Loss"], ["error", "Error (%)"]], "loss", choose("value")),
    element("button", { type: "button", "aria-label": "Turn left", onclick: () => turnBoth(-15) }, "⟲"),
    element("button", { type: "button", "aria-label": "Turn right", onclick: () => turnBoth(15) }, "⟳")
  );
}

function buildSurfaces() {
  if (!DATA.surfaces.length) return;
  surfaceChoices();
  // WebGL starts when the surfaces come near the window.
  const watch = new IntersectionObserver(
    (found) => {
      if (!found.some((one) => one.isIntersecting)) return;
      watch.disconnect();
      surfacesSeen = true;
      showSurfaces();
    },
    { rootMargin: "300px" }
  );
  watch.observe(document.getElementById("surfaces"));
  onChange(showSurfaces);
}
