// The runs, their labels, and the best of them.

const MODES = { own: "as trained", soft: "soft", hard: "hard (binary)", tropical: "tropical (binary)" };

function readRuns(data) {
  const { columns, pools } = data.runs;
  return columns.id
    .map((_, i) => {
      const run = { index: i };
      for (const [name, values] of Object.entries(columns)) run[name] = values[i];
      run.environment = pools.environment[run.environment];
      run.rest = pools.rest[run.rest];
      run.label = run.neuron + (run.varies ? ` · ${run.varies}` : "");
      return run;
    })
    .sort((a, b) => rankOf(data, a) - rankOf(data, b)); // stable: among a neuron's runs, the newest stay first
}

const rankOf = (data, run) => (Object.keys(data.styles).indexOf(run.neuron) + 100) % 100;

const at = (run, quantity, mode) => run[`${quantity}_${mode === "own" ? run.mode : mode}`] ?? null;
// The runs without variants, which have the same neuron and data as another run, but different options.
function withoutVariants(runs) {
  const kind = (run) => JSON.stringify([run.dataset, run.neuron]);
  const plain = new Set(runs.filter((run) => !run.varies).map(kind));
  return runs.filter((run) => !run.varies || !plain.has(kind(run)));
}

const byDataset = (runs) => [...groupBy(runs, (run) => run.dataset)].sort(([a], [b]) => a.localeCompare(b, "en"));
const styleOf = (data, run) => data.styles[run.neuron] ?? ["#009E73", "dashdot", "o"];
const asStyle = ([color, line, marker]) => ({ color, line, marker });

// A dataset's networks with the best mean over seeds, so that a single lucky run does not win.
function bestOf(runs, mode) {
  const groups = [
    ...groupBy(
      runs.filter((run) => at(run, "accuracy", mode) !== null),
      (run) => `${run.label}, T = ${run.timesteps}${run.sparsity ? `, λ = ${run.sparsity}` : ""}`,
    ),
  ];
  const scored = groups.map(([name, of]) => ({ name, values: of.map((run) => at(run, "accuracy", mode)) }));
  return scored.reduce((a, b) => (a && mean(a.values) >= mean(b.values) ? a : b), null);
}

const withInterval = (values) =>
  `${mean(values).toFixed(1)}${values.length > 1 ? ` ± ${halfWidth(values).toFixed(1)}` : ""} %`;

function overview(host, data, runs) {
  const count = (values, one, many) => `${values.length} ${values.length === 1 ? one : many}`;
  const cards = byDataset(runs)
    .slice(0, 8)
    .map(([dataset, of]) => {
      const [best, hard] = [bestOf(of, "own"), bestOf(of, "hard")];
      return h(
        "div",
        { class: "card" },
        h("h3", {}, dataset),
        best && h("p", {}, h("b", { class: "big" }, withInterval(best.values)), h("span", {}, best.name)),
        hard &&
          hard.name !== best?.name &&
          h("p", {}, h("b", {}, withInterval(hard.values)), h("span", {}, `with binary spikes: ${hard.name}`)),
        h(
          "p",
          { class: "quiet" },
          [
            count(of, "run", "runs"),
            count(unique(of.map((r) => r.neuron)), "neuron", "neurons"),
            count(unique(of.map((r) => r.seed)), "seed", "seeds"),
          ].join(", "),
        ),
      );
    });
  host.append(h("div", { class: "cards" }, cards));
}
