// Fill the sections of the page, and remove those that have nothing to show.

const data = JSON.parse(find("data").textContent);

function fillSection(id, draw, there = true) {
  if (there) return draw(find(id).lastElementChild);
  find(id).remove();
  document.querySelector(`nav a[href="#${id}"]`).parentElement.remove();
}

// A plot with its own options, [key, label, options]: return the function that draws it for the shown runs.
function plotWith(host, choices, draw) {
  const box = h("div");
  let runs = [];
  const state = Object.fromEntries(choices.map(([key, , options]) => [key, options[0][0]]));
  const again = () => draw(box, runs, state);
  const change = (key) => (value) => {
    state[key] = value;
    again();
  };
  const selects = choices.map(([key, label, options]) => choose(label, options, change(key), state[key]));
  host.append(h("div", { class: "bar" }, selects), box);
  return (shown) => {
    runs = shown;
    again();
  };
}

function legend(runs) {
  const names = unique(runs.map((run) => run.neuron)).map((neuron) =>
    h("li", {}, sampleLine(asStyle(styleOf(data, { neuron }))), neuron),
  );
  return h("ul", { class: "legend", "aria-label": "Neurons" }, names);
}

function summary(runs) {
  const many = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
  const kinds = ["dataset", "neuron"].map((key) => many(unique(runs.map((run) => run[key])).length, key));
  return [many(runs.length, "run"), ...kinds].join(", ") + ".";
}

// The table and the plots that depend on the selected runs.
function fillRuns(runs) {
  const followers = [];
  const follow = (host, choices, draw) => followers.push(plotWith(host, choices, draw));
  const spikes = ["mode", "Spikes", Object.entries(MODES)];
  const some = withoutVariants(runs).length < runs.length;
  const variants = some ? [["variants", "Variants", Object.entries({ no: "hidden", yes: "shown" })]] : [];
  const wanted = (shown, state) => (state.variants === "no" ? withoutVariants(shown) : shown);
  const bar = h("div");
  fillSection("runs", (body) => {
    body.append(bar);
    const details = (run) => runDetails(data, run);
    followers.push(dataTable(body, { caption: "Runs", columns: runColumns(data), rows: runs, details }));
  });
  fillSection("accuracy", (body) => {
    const shownOrNot = Object.entries({ yes: "shown, hollow", no: "hidden" });
    const references = Object.keys(data.references).length ? [["references", "Published points", shownOrNot]] : [];
    const names = h("div");
    body.append(names);
    follow(body, [spikes, ...variants, ...references], (box, shown, state) => {
      names.replaceChildren(legend(shown));
      accuracyPlot(box, data, wanted(shown, state), state.mode, state.references === "yes");
    });
  });
  fillSection("energy", (body) => {
    const measures = Object.entries({ sops: "T × spike rate", nanojoules: "counted synaptic energy" });
    follow(body, [spikes, ["measure", "Energy", measures], ...variants], (box, shown, state) =>
      energyPlot(box, data, wanted(shown, state), state.mode, state.measure),
    );
  });
  const known = Object.entries(QUANTITIES).filter(([key]) => runs.some((run) => historyOf(data, run, key).length));
  const draw = (box, shown, state) => epochsPlot(box, data, wanted(shown, state), state.quantity);
  fillSection("learning", (body) => follow(body, [["quantity", "Show", known], ...variants], draw), known.length > 0);
  filters(bar, data, runs, (shown) => followers.forEach((update) => update(shown)));
}

function playgroundAlone() {
  for (const part of document.querySelectorAll("header, footer, section:not(#playground)")) part.remove();
  playground(find("playground").lastElementChild, data);
}

function main() {
  if (data.alone) return playgroundAlone();
  const runs = readRuns(data);
  const { networks } = data;
  find("summary").textContent = summary(runs);
  fillSection("overview", (body) => overview(body, data, runs));
  fillRuns(runs);
  fillSection("network", (body) => viewer(body, networks, runs), networks.length > 0);
  fillSection("boundaries", (body) => boundaries(body, networks, runs), networks.length > 0);
  data.sections.forEach(addSection);
  fillSection("playground", (body) => playground(body, data));
  fillSection("made", (body) => provenance(body, data, runs));
}

main();
