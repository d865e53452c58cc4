// A trained network's response to a sample: which neurons fire when, and the membrane of one neuron.

function networkName(run) {
  return `${run.label} on ${run.dataset}, T = ${run.timesteps}, seed ${run.seed}`;
}

// A part of the page that depends on the selected network.
function perNetwork(host, networks, runs, draw) {
  const byId = new Map(runs.map((run) => [run.id, run]));
  const box = h("div");
  const show = (index) => {
    box.replaceChildren();
    draw(box, networks[index], byId.get(networks[index].run));
  };
  const names = networks.map((network, i) => [String(i), networkName(byId.get(network.run))]);
  host.append(
    h(
      "div",
      { class: "bar" },
      choose("Network", names, (value) => show(Number(value)), "0"),
    ),
    box,
  );
  show(0);
}

function viewer(host, networks, runs) {
  perNetwork(host, networks, runs, (box, { observed }, run) => {
    const state = {
      sample: 0,
      mode: run.mode in observed.modes ? run.mode : Object.keys(observed.modes)[0],
      layer: 0,
      neuron: null,
    };
    const shown = h("div", { class: "viewer" });
    const apply = () => drawSample(shown, observed, state);
    const set =
      (key, convert = Number) =>
      (value) => {
        state[key] = convert(value);
        state.neuron = null;
        apply();
      };
    const samples = observed.samples.map((index, i) => [
      String(i),
      `${index}: ${observed.classes[observed.labels[i]]}`,
    ]);
    const modes = Object.keys(observed.modes).map((mode) => [mode, MODES[mode]]);
    const layers = observed.modes[state.mode].layers.map((_, i) => [String(i), `layer ${i + 1}`]);
    box.append(
      h(
        "div",
        { class: "bar" },
        choose("Test sample", samples, set("sample"), "0"),
        modes.length > 1 && choose("Spikes", modes, set("mode", String), state.mode),
        layers.length > 1 && choose("Layer", layers, set("layer"), "0"),
      ),
      shown,
    );
    apply();
  });
}

function drawSample(host, observed, state) {
  const { decided, layers } = observed.modes[state.mode];
  const layer = layers[state.layer];
  const size = observed.steps * layer.neurons;
  const part = (text) => bytes(text).subarray(state.sample * size, (state.sample + 1) * size);
  const spikes = part(layer.spikes);
  const membrane = part(layer.membrane);
  const [label, answer] = [observed.labels[state.sample], decided[state.sample]].map((one) => observed.classes[one]);
  const right = label === answer;
  const rates = Array.from({ length: layer.neurons }, (_, n) =>
    mean(Array.from({ length: observed.steps }, (_, t) => spikes[t * layer.neurons + n] / 255)),
  );
  const variety = rates.map((rate) => -Math.abs(rate - 0.4));
  state.neuron ??= variety.indexOf(Math.max(...variety));
  const traceBox = h("div");
  const choice = { layer, spikes, membrane, steps: observed.steps, state, traceBox, rates };
  host.replaceChildren(
    h(
      "figure",
      {},
      greyPicture(observed.pictures[state.sample], `The input, class ${label}`),
      h(
        "figcaption",
        {},
        `Class ${label}. The network predicts ${answer}`,
        h("span", { class: right ? "good" : "bad" }, right ? " (correct)." : " (wrong)."),
      ),
    ),
    h("div", {}, rasterOf(choice), traceBox),
  );
  drawTrace(choice);
}

function drawTrace({ layer, spikes, membrane, steps, state, traceBox, rates }) {
  const at = (t) => layer.low + (membrane[t * layer.neurons + state.neuron] / 255) * (layer.high - layer.low);
  const points = Array.from({ length: steps }, (_, t) => {
    const spike = spikes[t * layer.neurons + state.neuron] / 255;
    return {
      x: t + 1,
      y: at(t),
      lines: [`step ${t + 1}: membrane ${at(t).toFixed(3)}`, `spike ${spike.toFixed(2)}`],
      spike,
    };
  });
  const style = { color: "#0072B2", line: "solid", marker: "o" };
  const fired = points.filter((point) => point.spike > 0.5).map((point) => ({ ...point, y: layer.threshold }));
  const edge = [1, steps].map((x) => ({ x, y: layer.threshold, lines: ["threshold"] }));
  traceBox.replaceChildren(
    h(
      "p",
      { class: "quiet", role: "status" },
      `Neuron ${state.neuron}: spike rate ${rates[state.neuron].toFixed(2)}. Point at a row above to select another neuron.`,
    ),
  );
  chart(traceBox, {
    height: 190,
    numbers: false,
    x: { label: "time step", tight: true },
    y: { label: "membrane after reset" },
    series: [
      {
        name: "threshold",
        style: { color: "#80868F", line: "dashed", marker: "o" },
        joined: true,
        thin: true,
        points: edge,
      },
      { name: `neuron ${state.neuron}`, style, joined: true, points },
      { name: "spikes", style: { color: "#D55E00", line: "solid", marker: "^" }, points: fired },
    ],
  });
}
