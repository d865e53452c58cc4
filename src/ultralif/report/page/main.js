// The page: its sections, in order. A section without anything to show is not there.

const data = JSON.parse(find("data").textContent);

function section(id, name, title, text, draw) {
  const body = h("div");
  find("main").append(h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), text && h("p", { class: "quiet" }, text), body));
  find("contents").append(h("li", {}, h("a", { href: `#${id}` }, name)));
  draw(body);
}

// A plot with choices of its own: returns what draws it for the runs that are shown.
function plotWith(host, choices, draw) {
  const box = h("div");
  let runs = [];
  const state = Object.fromEntries(choices.map(([key, , options]) => [key, options[0][0]]));
  const again = () => draw(box, runs, state);
  host.append(h("div", { class: "bar" }, choices.map(([key, label, options]) => choose(label, options, (value) => { state[key] = value; again(); }, state[key]))), box);
  return (shown) => { runs = shown; again(); };
}

function legend(host, runs) {
  const names = unique(runs.map((run) => run.neuron)).map((neuron) => h("li", {}, sampleLine(asStyle(styleOf(data, { neuron }))), neuron));
  host.replaceChildren(h("ul", { class: "legend", "aria-label": "Neurons" }, names));
}

function main() {
  const runs = readRuns(data);
  const many = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
  find("summary").textContent = [many(runs.length, "run"), many(unique(runs.map((run) => run.dataset)).length, "dataset"), many(unique(runs.map((run) => run.neuron)).length, "neuron")].join(", ") + ".";
  const modes = Object.entries(MODES);
  const followers = [];
  const follow = (host, choices, draw) => followers.push(plotWith(host, choices, draw));

  section("overview", "Overview", "Overview", "The best mean over seeds for each dataset, with its 95 % interval.", (body) => overview(body, data, runs));
  section("runs", "Runs", "Runs", "What is chosen here holds for this table and for the plots below. Open a run to see how its numbers were made.", (body) => {
    const bar = h("div");
    body.append(bar);
    const update = dataTable(body, { caption: "Runs", columns: runColumns(data), rows: runs, details: (run) => runDetails(data, run) });
    followers.push(update);
    body.filterBar = () => filters(bar, data, runs, (shown) => followers.forEach((draw) => draw(shown)));
  });
  section("accuracy", "Accuracy", "Accuracy over time steps", "Means over seeds with 95 % intervals, without a penalty on spikes.", (body) => {
    const colours = h("div");
    body.append(colours);
    const published = Object.keys(data.published).length ? [["published", "Published points", [["yes", "shown, hollow"], ["no", "hidden"]]]] : [];
    follow(body, [["mode", "Spikes", modes], ...published], (box, shown, state) => {
      legend(colours, shown);
      accuracyPlot(box, data, shown, state.mode, state.published === "yes");
    });
  });
  section("energy", "Energy", "Accuracy against energy", "Lines join the weights λ of the spike rate in the loss.", (body) => {
    const measures = [["sops", "T × spike rate"], ["nanojoules", "counted synaptic energy"]];
    follow(body, [["mode", "Spikes", modes], ["measure", "Energy", measures]], (box, shown, state) => energyPlot(box, data, shown, state.mode, state.measure));
  });
  if (runs.some((run) => QUANTITY_KEYS.some((key) => historyOf(data, run, key).length)))
    section("learning", "Learning", "What was learned", "Learned constants and measures of training from epoch to epoch; a line is a run.", (body) => {
      const there = Object.entries(QUANTITIES).filter(([key]) => runs.some((run) => historyOf(data, run, key).length));
      follow(body, [["quantity", "Show", there]], (box, shown, state) => epochsPlot(box, data, shown, state.quantity));
    });
  if (data.networks.length) {
    section("network", "Spikes", "Inside a network", "The spikes of the hidden neurons for samples of the test set.", (body) => viewer(body, data.networks, runs));
    section("boundaries", "Boundaries", "Decision boundaries", null, (body) => boundaries(body, data.networks, runs));
  }
  if (data.tables.length) section("tables", "Tables", "The paper's tables", "Published and measured numbers side by side.", (body) => paperTables(body, data));
  if (data.verdicts.length || data.theory.length)
    section("verdicts", "Verdicts", "Verdicts", "What the runs and the tests say about the paper's claims.", (body) => {
      if (data.verdicts.length) verdictTable(body, "Experiments", data.verdicts);
      if (data.theory.length) verdictTable(body, "Theory", data.theory);
    });
  section("playground", "Playground", "Playground", "Lower eps and watch the soft neuron become the max-plus one.", (body) => playground(body, data));
  section("made", "Provenance", "How it was made", null, (body) => provenance(body, data, runs));
  find("runs").lastElementChild.filterBar();
}

main();
