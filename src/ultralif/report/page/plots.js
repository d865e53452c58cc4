// The plots of the runs, with one panel for each dataset.

const QUANTITIES = {
  eps: "temperature eps",
  leak: "leak",
  loss: "training loss",
  accuracy: "training accuracy %",
  spike_rate: "spike rate",
};
const MOST_LINES = 80;
const ACCURACY = { label: "test accuracy %", possible: [0, 100] };

// At most the given number of a list's entries, evenly spaced.
const evenly = (list, most) =>
  list.length <= most ? list : Array.from({ length: most }, (_, i) => list[Math.floor((i * list.length) / most)]);

const seedsOf = (of) => `${of.length} ${of.length === 1 ? "seed" : "seeds"}`;

// One panel for each dataset, in a grid.
function panels(host, runs, draw) {
  const grid = h("div", { class: "panels" });
  host.replaceChildren(grid);
  const datasets = byDataset(runs).slice(0, 12);
  grid.classList.toggle("single", datasets.length < 2);
  for (const [dataset, of] of datasets) {
    const panel = h("div");
    grid.append(panel);
    draw(panel, dataset, of);
  }
  if (!runs.length) grid.append(h("p", { class: "empty" }, "No runs match this selection."));
}

function accuracyPlot(host, data, runs, mode, withPublished) {
  panels(host, runs, (panel, dataset, of) => {
    const scored = of.filter((run) => at(run, "accuracy", mode) !== null);
    const least = Math.min(...scored.map((run) => run.sparsity));
    const times = ascending(of.map((run) => run.timesteps));
    const series = [];
    for (const [label, group] of groupBy(
      scored.filter((run) => run.sparsity === least),
      (run) => run.label,
    )) {
      const style = asStyle(styleOf(data, group[0]));
      const points = times.flatMap((time) => {
        const values = group.filter((run) => run.timesteps === time).map((run) => at(run, "accuracy", mode));
        if (!values.length) return [];
        const [y, half] = [mean(values), halfWidth(values)];
        return [
          {
            x: time,
            y,
            half,
            lines: [
              `T = ${time}: ${y.toFixed(2)} %${half ? ` ± ${half.toFixed(2)}` : ""}`,
              `${MODES[mode]}, ${seedsOf(values)}`,
            ],
          },
        ];
      });
      series.push({ name: label, style, joined: true, points });
      const known = withPublished && !group[0].varies && data.references[dataset]?.[group[0].neuron];
      if (known)
        series.push({
          name: `${label}, published`,
          style,
          hollow: true,
          points: times
            .filter((t) => t in known)
            .map((t) => ({ x: t, y: known[t], lines: [`T = ${t}: ${known[t]} %`, "a published number"] })),
        });
    }
    chart(panel, {
      title: dataset,
      series,
      x: { label: "time steps T", categories: times },
      y: ACCURACY,
    });
  });
}

function energyPlot(host, data, runs, mode, measure) {
  const label = { sops: "T × spike rate", nanojoules: "counted synaptic energy, nJ per sample" }[measure];
  panels(host, runs, (panel, dataset, of) => {
    const known = of.filter((run) => at(run, measure, mode) > 0 && at(run, "accuracy", mode) !== null);
    const series = [...groupBy(known, (run) => `${run.label}, T = ${run.timesteps}`)].map(([name, group]) => {
      const points = [...groupBy(group, (run) => run.sparsity)]
        .sort(([a], [b]) => a - b)
        .map(([lambda, same]) => {
          const [x, values] = [
            mean(same.map((run) => at(run, measure, mode))),
            same.map((run) => at(run, "accuracy", mode)),
          ];
          return {
            x,
            y: mean(values),
            half: halfWidth(values),
            lines: [`λ = ${lambda}`, `${mean(values).toFixed(2)} % at ${spell(x)}`, `${MODES[mode]}, ${seedsOf(same)}`],
          };
        });
      return { name, style: asStyle(styleOf(data, group[0])), joined: true, points };
    });
    chart(panel, { title: dataset, series, x: { label, log: true }, y: ACCURACY });
  });
}

// A history contains only some epochs; a single value applies to all of them.
function historyOf(data, run, quantity) {
  const values = data.history[quantity][run.index];
  const epochs = data.history.grids[data.history.grid[run.index]];
  return values ? epochs.map((epoch, i) => [epoch, values.length === 1 ? values[0] : values[i]]) : [];
}

// One line for each run, or for a selection if there are too many.
function epochsPlot(host, data, runs, quantity) {
  const known = runs.filter((run) => historyOf(data, run, quantity).length);
  const line = (run) => ({
    name: `${run.label}, T = ${run.timesteps}`,
    style: asStyle(styleOf(data, run)),
    joined: true,
    thin: true,
    points: historyOf(data, run, quantity).map(([x, y]) => ({
      x,
      y,
      lines: [`epoch ${x}: ${spell(y)}`, `seed ${run.seed}, λ = ${run.sparsity}, run ${run.id}`],
    })),
  });
  panels(host, known, (panel, dataset, of) => {
    const shown = evenly(of, MOST_LINES);
    if (shown.length < of.length)
      panel.append(h("p", { class: "quiet" }, `${shown.length} of ${of.length} runs, from all neurons.`));
    const axes = { x: { label: "epoch", tight: true }, y: { label: QUANTITIES[quantity] } };
    chart(panel, { title: dataset, series: shown.map(line), ...axes, numbers: of.length <= 12 });
  });
}
