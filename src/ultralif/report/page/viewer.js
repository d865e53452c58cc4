// What a trained network does with a sample: which neurons fire when, and the membrane of one of them.

const RASTER = { row: 5, left: 34, bottom: 30 };

function networkName(run) {
  return `${run.label} on ${run.dataset}, T = ${run.timesteps}, seed ${run.seed}`;
}

// A part of the page that follows a choice of network.
function perNetwork(host, networks, runs, draw) {
  const byId = new Map(runs.map((run) => [run.id, run]));
  const box = h("div");
  const show = (index) => {
    box.replaceChildren();
    draw(box, networks[index], byId.get(networks[index].run));
  };
  const names = networks.map((network, i) => [String(i), networkName(byId.get(network.run))]);
  host.append(h("div", { class: "bar" }, choose("Network", names, (value) => show(Number(value)), "0")), box);
  show(0);
}

function viewer(host, networks, runs) {
  perNetwork(host, networks, runs, (box, { observed }, run) => {
    const state = { sample: 0, mode: run.mode in observed.modes ? run.mode : Object.keys(observed.modes)[0], layer: 0, neuron: null };
    const shown = h("div", { class: "viewer" });
    const apply = () => drawSample(shown, observed, state);
    const set = (key, convert = Number) => (value) => { state[key] = convert(value); state.neuron = null; apply(); };
    const samples = observed.samples.map((index, i) => [String(i), `${index}: ${observed.classes[observed.labels[i]]}`]);
    const modes = Object.keys(observed.modes).map((mode) => [mode, MODES[mode]]);
    const layers = observed.modes[state.mode].layers.map((_, i) => [String(i), `layer ${i + 1}`]);
    box.append(h("div", { class: "bar" }, choose("Sample of the test set", samples, set("sample"), "0"),
      modes.length > 1 && choose("Spikes", modes, set("mode", String), state.mode), layers.length > 1 && choose("Layer", layers, set("layer"), "0")), shown);
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
  const rates = Array.from({ length: layer.neurons }, (_, n) => mean(Array.from({ length: observed.steps }, (_, t) => spikes[t * layer.neurons + n] / 255)));
  const variety = rates.map((rate) => -Math.abs(rate - 0.4));
  state.neuron ??= variety.indexOf(Math.max(...variety));
  const traceBox = h("div");
  const choice = { layer, spikes, membrane, steps: observed.steps, state, traceBox, rates };
  host.replaceChildren(
    h("figure", {}, greyPicture(observed.pictures[state.sample], `The input, class ${label}`),
      h("figcaption", {}, `Class ${label}. The network says ${answer}`, h("span", { class: right ? "good" : "bad" }, right ? ", right." : ", wrong."))),
    h("div", {}, rasterOf(choice), traceBox));
  drawTrace(choice);
}

function rasterOf(choice) {
  const { layer, spikes, steps, state } = choice;
  const box = h("div", { class: "chart raster" });
  const height = layer.neurons * RASTER.row + RASTER.bottom + 6;
  const names = layer.neurons < layer.all ? ` (the first ${layer.neurons} of ${layer.all})` : "";
  onWidth(box, (width) => {
    const column = (width - RASTER.left - 8) / steps;
    const top = (neuron) => 4 + (layer.neurons - 1 - neuron) * RASTER.row;
    let path = "";
    for (let t = 0; t < steps; t++)
      for (let n = 0; n < layer.neurons; n++) {
        const spike = spikes[t * layer.neurons + n] / 255;
        if (spike < 0.03) continue;
        const [w, tall] = [Math.min(column * 0.8, 7) * spike, (RASTER.row - 0.8) * spike];
        const [x, y] = [RASTER.left + (t + 0.5) * column - w / 2, top(n) + (RASTER.row - tall) / 2];
        path += `M${x.toFixed(1)} ${y.toFixed(1)}h${w.toFixed(1)}v${tall.toFixed(1)}h${(-w).toFixed(1)}Z`;
      }
    const band = s("rect", { x: RASTER.left, width: width - RASTER.left - 8, height: RASTER.row, class: "chosen" });
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "slider", tabindex: "0",
      "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": layer.neurons - 1,
      "aria-label": `Neuron of the raster: ${layer.neurons} neurons${names} over ${steps} steps` }, band, s("path", { d: path, class: "dots" }));
    for (let n = 0; n < layer.neurons; n += 16) svg.append(s("text", { x: RASTER.left - 6, y: top(n) + 7, "text-anchor": "end" }, String(n)));
    const every = Math.max(1, Math.ceil(steps / 10));
    for (let t = 0; t < steps; t += every) svg.append(s("text", { x: RASTER.left + (t + 0.5) * column, y: height - 18, "text-anchor": "middle" }, String(t + 1)));
    svg.append(s("text", { x: width / 2, y: height - 3, "text-anchor": "middle" }, "time step"));
    const pick = (neuron) => {
      state.neuron = Math.min(Math.max(neuron, 0), layer.neurons - 1);
      mark();
      drawTrace(choice);
    };
    const mark = () => {
      band.setAttribute("y", top(state.neuron));
      svg.setAttribute("aria-valuenow", state.neuron);
    };
    const under = (event) => layer.neurons - 1 - Math.floor((event.clientY - svg.getBoundingClientRect().top - 4) / RASTER.row);
    svg.addEventListener("pointermove", (event) => under(event) !== state.neuron && pick(under(event)));
    svg.addEventListener("pointerdown", (event) => pick(under(event)));
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      pick(state.neuron + move);
    });
    mark();
    box.replaceChildren(svg);
  });
  return box;
}

function drawTrace({ layer, spikes, membrane, steps, state, traceBox, rates }) {
  const at = (t) => layer.low + (membrane[t * layer.neurons + state.neuron] / 255) * (layer.high - layer.low);
  const points = Array.from({ length: steps }, (_, t) => {
    const spike = spikes[t * layer.neurons + state.neuron] / 255;
    return { x: t + 1, y: at(t), lines: [`step ${t + 1}: membrane ${at(t).toFixed(3)}`, `spike ${spike.toFixed(2)}`], spike };
  });
  const style = { color: "#0072B2", line: "solid", marker: "o" };
  const fired = points.filter((point) => point.spike > 0.5).map((point) => ({ ...point, y: layer.threshold }));
  const edge = [1, steps].map((x) => ({ x, y: layer.threshold, lines: ["threshold"] }));
  traceBox.replaceChildren(h("p", { class: "quiet", role: "status" }, `Neuron ${state.neuron}: spike rate ${rates[state.neuron].toFixed(2)}. Point at a row above for another.`));
  chart(traceBox, { height: 190, numbers: false, x: { label: "time step", tight: true }, y: { label: "membrane after reset" }, series: [
    { name: "threshold", style: { color: "#80868F", line: "dashed", marker: "o" }, joined: true, thin: true, points: edge },
    { name: `neuron ${state.neuron}`, style, joined: true, points },
    { name: "spikes", style: { color: "#D55E00", line: "solid", marker: "^" }, points: fired },
  ] });
}
