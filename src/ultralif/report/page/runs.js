// The runs: what they are, which of them are shown, and their pictures.

const MODES = { own: "as trained", soft: "soft spikes", hard: "binary spikes", tropical: "max-plus" };
const QUANTITIES = {
  eps: "temperature eps", leak: "leak", loss: "training loss", accuracy: "training accuracy %", spike_rate: "spike rate",
};
const QUANTITY_KEYS = Object.keys(QUANTITIES);
const MOST_LINES = 80;

function readRuns(data) {
  const { columns, pools } = data.runs;
  return columns.id.map((_, i) => {
    const run = { index: i };
    for (const [name, values] of Object.entries(columns)) run[name] = values[i];
    run.environment = pools.environment[run.environment];
    run.rest = pools.rest[run.rest];
    run.label = run.neuron + (run.varies ? ` · ${run.varies}` : "");
    return run;
  }).sort((a, b) => rankOf(data, a) - rankOf(data, b)); // stable: the newest stay first among runs of a neuron
}

const rankOf = (data, run) => (Object.keys(data.styles).indexOf(run.neuron) + 100) % 100;

const at = (run, quantity, mode) => run[`${quantity}_${mode === "own" ? run.mode : mode}`] ?? null;
const styleOf = (data, run) => data.styles[run.neuron] ?? ["#009E73", "dashdot", "o"];
const asStyle = ([color, line, marker]) => ({ color, line, marker });

// The networks of a dataset with the best mean over seeds; a single run is no better for its luck.
function bestOf(runs, mode) {
  const groups = [...groupBy(runs.filter((run) => at(run, "accuracy", mode) !== null), (run) => `${run.label}, T = ${run.timesteps}${run.sparsity ? `, λ = ${run.sparsity}` : ""}`)];
  const scored = groups.map(([name, of]) => ({ name, values: of.map((run) => at(run, "accuracy", mode)) }));
  return scored.reduce((a, b) => (a && mean(a.values) >= mean(b.values) ? a : b), null);
}

const withInterval = (values) => `${mean(values).toFixed(1)}${values.length > 1 ? ` ± ${halfWidth(values).toFixed(1)}` : ""} %`;

function overview(host, data, runs) {
  const count = (values, one, many) => `${values.length} ${values.length === 1 ? one : many}`;
  const cards = [...groupBy(runs, (run) => run.dataset)].slice(0, 8).map(([dataset, of]) => {
    const [best, hard] = [bestOf(of, "own"), bestOf(of, "hard")];
    return h("div", { class: "card" }, h("h3", {}, dataset),
      best && h("p", {}, h("b", { class: "big" }, withInterval(best.values)), h("span", {}, best.name)),
      hard && hard.name !== best?.name && h("p", {}, h("b", {}, withInterval(hard.values)), h("span", {}, `with binary spikes: ${hard.name}`)),
      h("p", { class: "quiet" }, [count(of, "run", "runs"), count(unique(of.map((r) => r.neuron)), "neuron", "neurons"), count(unique(of.map((r) => r.seed)), "seed", "seeds")].join(", ")));
  });
  host.append(h("div", { class: "cards" }, cards));
}

// The choice of runs. Calls changed(runs) at first and after every change.
function filters(host, data, runs, changed) {
  const state = { dataset: "", timesteps: "", sparsity: "", text: "", off: new Set() };
  const status = h("output", { class: "quiet", "aria-live": "polite" });
  const select = (label, key, spellOut) => {
    const values = unique(runs.map((run) => run[key])).sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
    if (values.length < 2) return null;
    const options = [["", "all"], ...values.map((value) => [String(value), spellOut ? spellOut(value) : String(value)])];
    return choose(label, options, (value) => { state[key] = value; apply(); }, "");
  };
  const search = h("input", { type: "search", placeholder: "run, option, device …", oninput: () => { state.text = search.value.toLowerCase(); apply(); } });
  const chips = unique(runs.map((run) => run.neuron)).map((neuron) => {
    const chip = h("button", { type: "button", class: "chip", "aria-pressed": "true", color: styleOf(data, { neuron })[0], onclick: () => {
      const off = !state.off.delete(neuron);
      if (off) state.off.add(neuron);
      chip.setAttribute("aria-pressed", String(!off));
      apply();
    } }, neuron);
    return chip;
  });
  host.append(
    h("div", { class: "bar" }, select("Dataset", "dataset"), select("T", "timesteps"), select("λ", "sparsity"), h("label", { class: "choice" }, h("span", {}, "Find"), search), status),
    ...(chips.length > 1 ? [h("div", { class: "bar", role: "group", "aria-label": "Neurons" }, chips)] : []),
  );
  const text = (run) => (run.text ??= [run.id, run.dataset, run.label, run.status, JSON.stringify(run.environment), JSON.stringify(run.rest)].join(" ").toLowerCase());

  function apply() {
    const shown = runs.filter((run) => ["dataset", "timesteps", "sparsity"].every((key) => !state[key] || String(run[key]) === state[key])
      && !state.off.has(run.neuron) && (!state.text || text(run).includes(state.text)));
    status.textContent = `${shown.length} of ${runs.length} runs`;
    changed(shown);
  }
  apply();
}

const seedsOf = (of) => `${of.length} ${of.length === 1 ? "seed" : "seeds"}`;

// One panel for each dataset, in a grid.
function panels(host, runs, draw) {
  const grid = h("div", { class: "panels" });
  host.replaceChildren(grid);
  const datasets = [...groupBy(runs, (run) => run.dataset)].slice(0, 12);
  grid.classList.toggle("single", datasets.length < 2);
  for (const [dataset, of] of datasets) {
    const panel = h("div");
    grid.append(panel);
    draw(panel, dataset, of);
  }
  if (!runs.length) grid.append(h("p", { class: "empty" }, "No runs for this choice."));
}

function accuracyPlot(host, data, runs, mode, withPublished) {
  panels(host, runs, (panel, dataset, of) => {
    const scored = of.filter((run) => at(run, "accuracy", mode) !== null);
    const least = Math.min(...scored.map((run) => run.sparsity));
    const times = ascending(of.map((run) => run.timesteps));
    const series = [];
    for (const [label, group] of groupBy(scored.filter((run) => run.sparsity === least), (run) => run.label)) {
      const style = asStyle(styleOf(data, group[0]));
      const points = times.flatMap((time) => {
        const values = group.filter((run) => run.timesteps === time).map((run) => at(run, "accuracy", mode));
        if (!values.length) return [];
        const [y, half] = [mean(values), halfWidth(values)];
        return [{ x: time, y, half, lines: [`T = ${time}: ${y.toFixed(2)} %${half ? ` ± ${half.toFixed(2)}` : ""}`, `${MODES[mode]}, ${seedsOf(values)}`] }];
      });
      series.push({ name: label, style, joined: true, points });
      const paper = withPublished && !group[0].varies && data.published[dataset]?.[group[0].neuron];
      if (paper) series.push({ name: `${label}, published`, style, hollow: true, points: times.filter((t) => t in paper).map((t) => ({ x: t, y: paper[t], lines: [`T = ${t}: ${paper[t]} %`, "the paper's number"] })) });
    }
    chart(panel, { title: dataset, series, x: { label: "time steps T", categories: times }, y: { label: "test accuracy %" } });
  });
}

function energyPlot(host, data, runs, mode, measure) {
  const label = { sops: "T × spike rate", nanojoules: "counted synaptic energy, nJ per sample" }[measure];
  panels(host, runs, (panel, dataset, of) => {
    const known = of.filter((run) => at(run, measure, mode) > 0 && at(run, "accuracy", mode) !== null);
    const series = [...groupBy(known, (run) => `${run.label}, T = ${run.timesteps}`)].map(([name, group]) => {
      const points = [...groupBy(group, (run) => run.sparsity)].sort(([a], [b]) => a - b).map(([lambda, same]) => {
        const [x, values] = [mean(same.map((run) => at(run, measure, mode))), same.map((run) => at(run, "accuracy", mode))];
        return { x, y: mean(values), half: halfWidth(values), lines: [`λ = ${lambda}`, `${mean(values).toFixed(2)} % at ${spell(x)}`, `${MODES[mode]}, ${seedsOf(same)}`] };
      });
      return { name, style: asStyle(styleOf(data, group[0])), joined: true, points };
    });
    chart(panel, { title: dataset, series, x: { label, log: true }, y: { label: "test accuracy %" } });
  });
}

// A history keeps a few of the epochs; one value stands for a constant.
function historyOf(data, run, quantity) {
  const values = data.history[quantity][run.index];
  const epochs = data.history.grids[data.history.grid[run.index]];
  return values ? epochs.map((epoch, i) => [epoch, values.length === 1 ? values[0] : values[i]]) : [];
}

function epochsPlot(host, data, runs, quantity) {
  panels(host, runs, (panel, dataset, of) => {
    const series = of.map((run) => ({
      name: `${run.label}, T = ${run.timesteps}`, style: asStyle(styleOf(data, run)), joined: true, thin: true,
      points: historyOf(data, run, quantity).map(([x, y]) => ({ x, y, lines: [`epoch ${x}: ${spell(y)}`, `seed ${run.seed}, λ = ${run.sparsity}, run ${run.id}`] })),
    })).filter((one) => one.points.length);
    if (series.length > MOST_LINES) panel.append(h("p", { class: "quiet" }, `The first ${MOST_LINES} of ${series.length} runs; choose fewer above.`));
    chart(panel, { title: dataset, series: series.slice(0, MOST_LINES), x: { label: "epoch", tight: true }, y: { label: QUANTITIES[quantity] }, numbers: series.length <= 12 });
  });
}
