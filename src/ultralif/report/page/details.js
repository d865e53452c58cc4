// The table of runs, and how each result was obtained.

function runColumns(data) {
  const number = (name, key, digits, title) => ({
    name,
    title,
    numeric: true,
    value: (run) => run[key] ?? null,
    text: (run) => fixed(digits)(run[key]),
  });
  const plain = (name, key, title) => ({
    name,
    title,
    numeric: true,
    value: (run) => run[key],
    text: (run) => String(run[key]),
  });
  return [
    { name: "Run", value: (run) => run.id, text: (run) => run.id },
    { name: "Dataset", value: (run) => run.dataset, text: (run) => run.dataset },
    {
      name: "Neuron",
      value: (run) => run.label,
      node: (run) => h("span", { class: "key", color: styleOf(data, run)[0] }, run.label),
    },
    plain("T", "timesteps", "Time steps"),
    plain("λ", "sparsity", "Weight of the spike rate in the loss"),
    plain("Seed", "seed"),
    {
      name: "Accuracy %",
      title: "Test accuracy as trained",
      numeric: true,
      value: (run) => at(run, "accuracy", "own"),
      text: (run) => fixed(2)(at(run, "accuracy", "own")),
    },
    number("Soft %", "accuracy_soft", 2, "Test accuracy with soft spikes"),
    number("Hard %", "accuracy_hard", 2, "Test accuracy with binary spikes, same weights"),
    number("Tropical %", "accuracy_tropical", 2, "Test accuracy with binary spikes and maxima: max-plus algebra"),
    {
      name: "Rate",
      title: "Mean spike of the hidden neurons, as trained",
      numeric: true,
      value: (run) => at(run, "rate", "own"),
      text: (run) => fixed(3)(at(run, "rate", "own")),
    },
    {
      name: "nJ",
      title: "Energy of the synaptic operations per sample, with binary spikes",
      numeric: true,
      value: (run) => run.nanojoules_hard,
      text: (run) => fixed(1)(run.nanojoules_hard),
    },
    number("eps", "eps", 3, "Temperature at the end"),
    number("Leak", "leak", 3, "Decay factor at the end"),
  ];
}

const quoted = (text) => (/^[\w.,+-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

function commandOf(run) {
  const own = [
    ["dataset", quoted(run.dataset)],
    ["neuron", run.neuron],
    ["timesteps", run.timesteps],
    ["seed", run.seed],
    ["sparsity", run.sparsity],
  ];
  return ["ultralif train", ...own.map(([name, value]) => `--${name} ${value}`), ...run.rest.flags].join(" ");
}

// A run's provenance, as pairs of a name and a text.
function madeOf(run) {
  const modes = Object.keys(MODES).filter((mode) => mode !== "own" && at(run, "accuracy", mode) !== null);
  const constants = Object.entries(run.learned ?? {}).map(
    ([name, layers]) => `${name} ${layers.map((x) => spell(x)).join(", ")}`,
  );
  return [
    ["command", h("code", {}, commandOf(run))],
    ["config, where it differs from the defaults", run.rest.text || "all default"],
    ["reported accuracy", `on the whole test set, after the last of ${run.epochs} epochs rather than the best one`],
    ...modes.map((mode) => [MODES[mode], measured(run, mode)]),
    ["break-even with an int8 network", breakEven(run)],
    ["trained", trained(run)],
    ["learned constants", constants.join("; ")],
    ...Object.entries(run.environment ?? {}).map(([name, value]) => [name.replaceAll("_", " "), String(value)]),
    ["weights sha256", run.weights],
  ].filter(([, value]) => value);
}

function measured(run, mode) {
  const [macs, acs] = ["macs", "acs"].map((kind) => spell(at(run, kind, mode), 0));
  const operations = `${macs} multiplications and ${acs} additions per sample`;
  const int8 = at(run, "int8", mode) ? `, ${fixed(1)(at(run, "int8", mode))} nJ in int8 with memory` : "";
  return `${fixed(2)(at(run, "accuracy", mode))} %, spike rate ${fixed(4)(at(run, "rate", mode))}, ${operations}${int8}`;
}

function breakEven(run) {
  return run.break_even == null ? "" : `${fixed(3)(run.break_even)} spikes per synapse and time step`;
}

function trained(run) {
  const when = run.finished && `${new Date(run.finished * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
  const time = run.seconds && `${spell(run.seconds, 1)} s in a stack of ${run.stacked}`;
  return [run.status, when, time].filter(Boolean).join(", ");
}

function runDetails(data, run) {
  const pairs = madeOf(run).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
  return h("div", { class: "made" }, h("dl", {}, pairs));
}

function provenance(host, data, runs) {
  const groups = [
    ...groupBy(
      runs.filter((run) => run.environment),
      (run) => JSON.stringify(run.environment),
    ),
  ];
  if (groups.length) {
    const names = unique(groups.flatMap(([key]) => Object.keys(JSON.parse(key))));
    const short = (value) =>
      typeof value === "string" && /^[0-9a-f]{64}$/.test(value) ? `${value.slice(0, 16)} …` : String(value ?? "–");
    dataTable(host, {
      caption: "Code, devices and data of the runs",
      rows: groups.map(([key, of]) => ({ ...JSON.parse(key), of })),
      columns: [
        { name: "runs", numeric: true, value: (row) => row.of.length },
        ...names.map((name) => ({ name: name.replaceAll("_", " "), value: (row) => short(row[name]) })),
        { name: "datasets", value: (row) => unique(row.of.map((run) => run.dataset)).join(", ") },
      ],
    });
  }
  host.append(
    h(
      "ul",
      { class: "notes" },
      data.notes.map((note) => h("li", {}, note)),
    ),
  );
}
