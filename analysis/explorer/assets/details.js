// The dialog behind a number: its runs, their settings, the command that trains them, and their provenance.

const dialog = document.getElementById("details");

const ABOUT = [
  ["Settings", ["model", "rounds", "local_epochs", "local_steps", "batch_size", "hyperparameters", "training", "variant", "trials"]],
  ["Provenance", ["code", "versions", "device", "engine", "protocol", "data_hash", "partition_hash"]],
];

const WORDS = {
  local_epochs: "local epochs", local_steps: "local steps", batch_size: "batch size",
  hyperparameters: "hyper-parameters", trials: "tuning trials", code: "code of FedFlat", versions: "libraries",
  data_hash: "hash of the data", partition_hash: "hash of the partition",
};

/** JSON objects as one value per line; other values as they are. */
function inWords(value) {
  if (typeof value !== "string" || !value.startsWith("{")) return String(value);
  const pairs = Object.entries(JSON.parse(value));
  return pairs.length ? pairs.map(([name, one]) => `${name}: ${JSON.stringify(one)}`).join("\n") : "none";
}

function facts(runs, names) {
  const list = element("dl");
  for (const name of names) {
    const values = [...new Set(runs.map((run) => run[name]).filter((value) => value !== null && value !== undefined))];
    if (!values.length) continue;
    list.append(element("dt", {}, WORDS[name] ?? name), element("dd", {}, values.map(inWords).join("\n")));
  }
  return list;
}

/** The commands that train the runs: one for each cell. */
function commandsOf(runs) {
  const cells = runs.filter((run) => run.experiment).map((run) => `fedflat run ${quoted(run.experiment)} ${quoted(`${run.setting}/${run.method}`)}`);
  return [...new Set(cells)];
}

const quoted = (text) => (/^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function runTable(runs, column) {
  const settings = new Set(runs.map((run) => run.setting)).size > 1;
  const heads = [...(settings ? ["setting"] : []), "seed", NAMES[column], "outcome", "rounds", "seconds", "identity"];
  const rows = runs.map((run) => [
    ...(settings ? [DATA.settings[run.setting]] : []),
    run.seed, valueText(column, run[column]), run.outcome, run.last_round, short(run.seconds), element("code", {}, run.identity),
  ]);
  return element(
    "table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell ?? MISSING)))))
  );
}

/** How a value of a column is printed. */
function valueText(column, value) {
  if (value === null || value === undefined) return MISSING;
  if (/accuracy|miou|generalisation/.test(column)) return fixed(value, 2);
  if (/^round/.test(column)) return fixed(value, Number.isInteger(value) ? 0 : 1);
  return short(value);
}

function commandBlock(command) {
  const copy = element("button", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command);
    copy.textContent = "Copied";
  });
  return element("div", { class: "command" }, element("pre", {}, element("code", {}, command)), navigator.clipboard ? copy : null);
}

/** Open the dialog for the runs behind a number. */
function showDetails(entry, runs, column) {
  if (!runs.length) return;
  const settings = [...new Set(runs.map((run) => DATA.settings[run.setting]))];
  const values = known(runs.map((run) => run[column]));
  const spread = values.length > 1 ? ` ± ${valueText(column, spreadOf(values))}` : "";
  const body = document.getElementById("details-body");
  const commands = commandsOf(runs);
  body.replaceChildren(
    element("h2", { id: "details-title" }, swatch(entry), ` ${entry.title}`),
    element("p", { class: "lead" }, settings.join("; ")),
    element(
      "p", {}, `${NAMES[column]}: `, element("strong", {}, valueText(column, mean(values)) + spread),
      ` (${values.length} of ${runs.length} run${runs.length === 1 ? "" : "s"}${spread ? `, ± ${SPREADS[state.spread]}` : ""})`
    ),
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Runs" }, runTable(runs, column)),
    ...(commands.length ? [element("h3", {}, "Command"), element("p", {}, "Trains all seeds of the cell:"), ...commands.map(commandBlock)] : []),
    ...ABOUT.flatMap(([title, names]) => [element("h3", {}, title), facts(runs, names)])
  );
  dialog.showModal();
  body.scrollTop = 0;
}

const SPREADS = { deviation: "standard deviation over seeds", interval: "95 % interval of the mean (Student's t)" };

document.getElementById("close-details").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
