// One neuron of the playground: its membrane, spikes and gradients over time.

const PLAYERS = {
  UltraLIF: "the soft maximum of its decayed membrane and its input",
  UltraDLIF: "the soft maximum of itself and its two neighbours on a ring of nine, plus its input; no leak",
  LIF: "the sum of its decayed membrane and its input; always binary, with a surrogate gradient",
};
const STRIPS = [
  { key: "membrane", label: "membrane", height: 110, limit: true },
  { key: "spike", label: "spike", height: 52, bars: true, range: [0, 1] },
  { key: "dspike", label: "∂ spike / ∂ input", height: 72 },
];

// A panel draws itself when called with the state; hovering selects the same step in all panels.
function player(neuron, color, point) {
  const reading = h("output", { class: "reading" });
  const strips = STRIPS.map((strip) => ({ ...strip, node: h("div") }));
  const body = h(
    "div",
    { tabindex: "0", role: "group", "aria-label": `${neuron} over time. Use the arrow keys to move between steps.` },
    strips.map((strip) => strip.node),
  );
  const node = h(
    "div",
    { class: "strip", "data-neuron": neuron },
    h("h3", { class: "key", color }, neuron),
    h("p", { class: "quiet tall" }, `V is ${PLAYERS[neuron]}.`),
    body,
    reading,
  );
  let last = null;
  let width = 0;
  const draw = (state) => {
    last = state;
    if (!width) return;
    const options = {
      eps: state.eps,
      leak: state.leak,
      threshold: state.threshold,
      mode: state.mode,
      centered: state.centered,
    };
    const shape = shapeOf(state.shape);
    const run = formulas.run(neuron, shape, state.input, options);
    const limit = neuron === "LIF" ? null : formulas.run(neuron, shape, state.input, { ...options, mode: "tropical" });
    for (const strip of strips)
      strip.node.replaceChildren(
        drawStrip(
          strip,
          run,
          limit,
          shape.map((x) => x * state.input),
          state,
          color,
          width,
        ),
      );
    reading.textContent = state.at === null ? summaryOf(run, limit) : readingOf(run, state.at);
  };
  const step = (event) =>
    Math.min(
      Math.max(
        Math.floor(
          ((event.clientX - body.getBoundingClientRect().left - PLACE.left) / (width - PLACE.left - PLACE.right)) *
            STEPS,
        ),
        0,
      ),
      STEPS - 1,
    );
  body.addEventListener("pointermove", (event) => point(step(event)));
  body.addEventListener("pointerleave", () => point(null));
  body.addEventListener("blur", () => point(null));
  body.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    point(((last.at ?? (move > 0 ? -1 : STEPS)) + move + STEPS) % STEPS);
  });
  onWidth(body, (now) => {
    width = now;
    if (last) draw(last);
  });
  return Object.assign(draw, { node });
}

function summaryOf(run, limit) {
  const spikes = `${run.spike.reduce((a, b) => a + b, 0).toFixed(2)} spikes`;
  if (!limit) return spikes;
  const gap = Math.max(...run.membrane.map((value, t) => Math.abs(value - limit.membrane[t])));
  return `${spikes}; at most ${gap.toFixed(3)} from max-plus`;
}

const readingOf = (run, t) =>
  `step ${t + 1}: membrane ${run.membrane[t].toFixed(3)}, spike ${run.spike[t].toFixed(3)}, gradient ${run.dspike[t].toFixed(3)}`;

const tick = (value) => (Math.abs(value) < 0.05 ? "0" : fixed(1)(value));
const PLACE = { left: 44, right: 6 };

function drawStrip(strip, run, limit, input, state, color, width) {
  const values = run[strip.key];
  const shown = strip.limit ? [...values, ...input, ...(limit?.membrane ?? []), state.threshold] : values;
  const [low, high] = strip.range ?? [Math.min(0, ...shown), Math.max(0.1, ...shown)];
  const height = strip.height;
  const y = (value) => 6 + ((high - value) / (high - low)) * (height - 12);
  const column = (width - PLACE.left - PLACE.right) / STEPS;
  const x = (t) => PLACE.left + (t + 0.5) * column;
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  svg.append(
    s("text", { x: PLACE.left - 6, y: y(high) + 8, "text-anchor": "end" }, tick(high)),
    s("text", { x: PLACE.left - 6, y: y(low) + 1, "text-anchor": "end" }, tick(low)),
  );
  const bars = (of, base, attributes) =>
    svg.append(
      s("path", {
        ...attributes,
        d: of
          .map((value, t) =>
            value
              ? `M${(x(t) - column * 0.4).toFixed(1)} ${y(base).toFixed(1)}V${y(value).toFixed(1)}h${(column * 0.8).toFixed(1)}V${y(base).toFixed(1)}Z`
              : "",
          )
          .join(""),
      }),
    );
  if (strip.limit) {
    bars(input, 0, { class: "faint" });
    svg.append(
      s("line", {
        x1: PLACE.left,
        x2: width - PLACE.right,
        y1: y(state.threshold),
        y2: y(state.threshold),
        class: "threshold",
      }),
    );
  } else svg.append(s("line", { x1: PLACE.left, x2: width - PLACE.right, y1: y(0), y2: y(0), class: "grid" }));
  if (strip.bars) bars(values, 0, { fill: color });
  else
    svg.append(
      s("path", {
        d: "M" + values.map((value, t) => `${x(t).toFixed(1)} ${y(value).toFixed(1)}`).join("L"),
        fill: "none",
        stroke: color,
        "stroke-width": 1.8,
      }),
    );
  if (strip.limit && limit)
    svg.append(...limit.membrane.map((value, t) => s("circle", { cx: x(t), cy: y(value), r: 1.7, class: "dots" })));
  svg.append(s("text", { x: width - PLACE.right, y: 11, "text-anchor": "end" }, strip.label));
  if (state.at !== null)
    svg.append(s("line", { x1: x(state.at), x2: x(state.at), y1: 0, y2: height, class: "cursor" }));
  return svg;
}
