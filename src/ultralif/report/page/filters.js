// Filters for runs: by dataset, time steps, penalty and neuron, and by free text.

const FILTERS = { dataset: "Dataset", timesteps: "T", sparsity: "λ" };

function textOf(run) {
  const parts = [run.id, run.dataset, run.label, run.status, JSON.stringify(run.environment), JSON.stringify(run.rest)];
  return (run.text ??= parts.join(" ").toLowerCase());
}

function passes(run, state) {
  const chosen = Object.keys(FILTERS).every((key) => !state[key] || String(run[key]) === state[key]);
  return chosen && !state.off.has(run.neuron) && textOf(run).includes(state.text);
}

// A select with the existing values, or nothing if there is only one.
function filterSelect(key, runs, changed) {
  const values = unique(runs.map((run) => run[key]));
  values.sort((a, b) => String(a).localeCompare(String(b), "en", { numeric: true }));
  const options = [["", "all"], ...values.map((value) => [String(value), String(value)])];
  return values.length > 1 && choose(FILTERS[key], options, changed, "");
}

function neuronChip(neuron, color, changed) {
  const press = () => {
    const on = chip.getAttribute("aria-pressed") !== "true";
    chip.setAttribute("aria-pressed", String(on));
    changed(on);
  };
  const chip = h("button", { type: "button", class: "chip", "aria-pressed": "true", color, onclick: press }, neuron);
  return chip;
}

// Call changed(runs) initially and after every change.
function filters(host, data, runs, changed) {
  const state = { text: "", off: new Set() };
  const count = h("output", { class: "quiet", "aria-live": "polite" });
  const apply = () => {
    const shown = runs.filter((run) => passes(run, state));
    count.textContent = `${shown.length} of ${runs.length} runs`;
    changed(shown);
  };
  const set = (key) => (value) => {
    state[key] = value;
    apply();
  };
  const chips = unique(runs.map((run) => run.neuron)).map((neuron) =>
    neuronChip(neuron, styleOf(data, { neuron })[0], (on) => {
      if (on) state.off.delete(neuron);
      else state.off.add(neuron);
      apply();
    }),
  );
  const find = () => set("text")(search.value.toLowerCase());
  const search = h("input", { type: "search", placeholder: "run, option, device …", oninput: find });
  const selects = Object.keys(FILTERS).map((key) => filterSelect(key, runs, set(key)));
  const searching = h("label", { class: "choice" }, h("span", {}, "Find"), search);
  host.append(h("div", { class: "bar" }, selects, searching, count));
  if (chips.length > 1) host.append(h("div", { class: "bar", role: "group", "aria-label": "Neurons" }, chips));
  apply();
}
