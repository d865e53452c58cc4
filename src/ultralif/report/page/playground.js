// An interactive view of the neurons: one input, three neurons, and the effect of each constant.

const STEPS = 40;
const PULSES = { 3: 0.45, 4: 0.45, 5: 0.45, 12: 0.9, 13: 0.9, 22: 1.8, 30: 0.6 };
const SHAPES = {
  pulses: { name: "Pulses", at: (t) => PULSES[t] ?? 0 },
  steady: { name: "A steady current", at: (t) => (t < 3 ? 0 : 0.5) },
  ramp: { name: "A ramp", at: (t) => t / 20 },
  single: { name: "One pulse", at: (t) => (t === 5 ? 2 : 0) },
};
const SLIDERS = {
  eps: { name: "Temperature eps", value: 0.3, low: 0.01, high: 2, log: true },
  leak: { name: "Leak", value: 0.9, low: 0.5, high: 0.999 },
  threshold: { name: "Threshold", value: 0.5, low: 0.1, high: 1.5 },
  input: { name: "Input", value: 0.5, low: 0, high: 1.5 },
};

const shapeOf = (name) => Array.from({ length: STEPS }, (_, t) => SHAPES[name].at(t));

function playground(host, data) {
  const state = { mode: "soft", shape: "pulses", centered: true, at: null };
  const set = (key) => (value) => {
    state[key] = value;
    players.forEach((draw) => draw(state));
  };
  const players = Object.keys(PLAYERS).map((neuron) => player(neuron, data.styles[neuron][0], set("at")));
  const sliders = Object.entries(SLIDERS).map(([key, spec]) => slider(key, spec, set(key)));
  Object.keys(SLIDERS).forEach((key, i) => (state[key] = sliders[i].read()));
  const shapes = Object.entries(SHAPES).map(([key, shape]) => [key, shape.name]);
  const modes = ["soft", "hard", "tropical"].map((mode) => [mode, MODES[mode]]);
  const keeps = h("input", { type: "checkbox", checked: true, onchange: () => set("centered")(keeps.checked) });
  const fall = h("button", { type: "button", onclick: () => coolDown(sliders[0]) }, "Lower eps");
  host.append(
    h(
      "div",
      { class: "bar" },
      choose("Input over time", shapes, set("shape"), state.shape),
      choose("Spikes of the Ultra neurons", modes, set("mode"), state.mode),
      h("label", { class: "choice beside" }, keeps, "UltraDLIF keeps its mean"),
      fall,
    ),
    h(
      "div",
      { class: "sliders" },
      sliders.map((one) => one.node),
    ),
    h(
      "div",
      { class: "panels three" },
      players.map((one) => one.node),
    ),
    h("p", { class: "quiet" }, ABOUT),
  );
  set("at")(null);
}

const ABOUT =
  "Bars in the first strip show the input, lines the membrane before reset, and dots its max-plus limit. " +
  "Gradients are exact derivatives of each spike with respect to the strength of the whole input. LIF uses " +
  "its surrogate gradient, and binary Ultra spikes use the gradient of the soft spike.";

function slider(key, spec, changed) {
  const [to, from] = spec.log ? [Math.log10, (x) => 10 ** x] : [(x) => x, (x) => x];
  const shown = h("output", { for: `slider-${key}` });
  const input = h("input", {
    type: "range",
    id: `slider-${key}`,
    min: to(spec.low),
    max: to(spec.high),
    step: spec.log ? 0.01 : 0.001,
    value: to(spec.value),
  });
  const read = () => {
    const value = from(Number(input.value));
    shown.textContent = value.toFixed(3);
    input.setAttribute("aria-valuetext", shown.textContent);
    return value;
  };
  input.addEventListener("input", () => changed(read()));
  const node = h("label", { class: "slider", for: input.id }, h("span", {}, spec.name), shown, input);
  return { node, input, read };
}

// Lower eps within two seconds, or immediately if the user prefers reduced motion.
function coolDown({ input }) {
  const set = (value) => {
    input.value = value;
    input.dispatchEvent(new Event("input"));
  };
  const [high, low] = [Number(input.max) - 0.3, Number(input.min)];
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return set(low);
  const began = performance.now();
  const frame = (now) => {
    const part = Math.min((now - began) / 2000, 1);
    set(high + (low - high) * part);
    if (part < 1) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
