// A chart of points with intervals, joined or not, on two axes. Hovering or the arrow keys identify a point.

const MARGIN = { top: 12, right: 12, bottom: 38, left: 56 };
const DASHES = { solid: null, dashed: "6 4", dotted: "2 3", dashdot: "7 3 2 3" };

function marker(shape, x, y, size, attributes) {
  const r = size;
  if (shape === "s") return s("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...attributes });
  if (shape === "^")
    return s("path", { d: `M${x} ${y - 1.2 * r}L${x + 1.15 * r} ${y + r}L${x - 1.15 * r} ${y + r}Z`, ...attributes });
  if (shape === "D")
    return s("path", {
      d: `M${x} ${y - 1.35 * r}L${x + 1.35 * r} ${y}L${x} ${y + 1.35 * r}L${x - 1.35 * r} ${y}Z`,
      ...attributes,
    });
  return s("circle", { cx: x, cy: y, r, ...attributes });
}

// A line and its marker, for legends.
function sampleLine({ color, line, marker: shape }) {
  return s(
    "svg",
    { width: 28, height: 12, viewBox: "0 0 28 12", "aria-hidden": "true" },
    s("line", { x1: 1, x2: 27, y1: 6, y2: 6, stroke: color, "stroke-width": 1.8, "stroke-dasharray": DASHES[line] }),
    marker(shape, 14, 6, 3.6, { fill: color }),
  );
}

function drawAxes(svg, box, x, y, spec) {
  for (const t of y.ticks) {
    const at = y.place(t);
    svg.append(s("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "grid" }));
    svg.append(s("text", { x: box.left - 6, y: at + 4, "text-anchor": "end" }, y.text(t)));
  }
  for (const t of x.ticks)
    svg.append(s("text", { x: x.place(t), y: box.bottom + 16, "text-anchor": "middle" }, x.text(t)));
  svg.append(s("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }));
  svg.append(
    s(
      "text",
      { x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle", class: "name" },
      spec.x.label,
    ),
  );
  if (spec.title) svg.append(s("text", { x: box.left, y: 14, class: "title" }, spec.title));
}

// series: { name, style: {color, line, marker}, joined, hollow, thin, points: [{x, y, half, lines}] }
function chart(host, spec) {
  const tip = h("div", { class: "tip", role: "status", hidden: true });
  const frame = h("div", { class: "chart" }, tip);
  host.append(frame);
  const shown = spec.series.filter((one) => one.points.length);
  if (!shown.length) {
    frame.append(h("p", { class: "empty" }, "Nothing to plot for this selection."));
    return;
  }
  onWidth(frame, (width) => {
    frame.querySelector("svg")?.remove();
    const { svg, places } = drawChart(shown, spec, width);
    frame.prepend(svg);
    hover(svg, places, tip, frame);
  });
  if (spec.numbers !== false) frame.append(numbers(shown, spec));
}

function drawChart(shown, spec, width) {
  const height = spec.height ?? Math.min(340, Math.max(230, width * 0.55));
  const [top, bottom] = [MARGIN.top + (spec.title ? 14 : 0), height - MARGIN.bottom];
  const all = shown.flatMap((one) => one.points);
  const range = (values) => [Math.min(...values), Math.max(...values)];
  const ys = all.flatMap((p) => ends(p, spec));
  const y = scaleOf({ range: range(ys), ...spec.y }, bottom, top);
  const digits = Math.max(0, ...y.ticks.map((t) => y.text(t).length));
  const box = { left: Math.max(MARGIN.left, 24 + 7 * digits), right: width - MARGIN.right, top, bottom };
  const xs = spec.x.categories ? [] : all.map((p) => p.x);
  const x = scaleOf({ range: range(xs), ...spec.x }, box.left + 6, box.right - 6);
  const label = `${spec.title ? spec.title + ": " : ""}${spec.y.label} over ${spec.x.label}, ${shown.length} series`;
  const svg = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    tabindex: "0",
    "aria-label": `${label}. Use the arrow keys to move between points.`,
  });
  drawAxes(svg, box, x, y, spec);
  svg.append(
    s(
      "text",
      {
        x: 12,
        y: (box.top + box.bottom) / 2,
        class: "name",
        "text-anchor": "middle",
        transform: `rotate(-90 12 ${(box.top + box.bottom) / 2})`,
      },
      spec.y.label,
    ),
  );
  const places = [];
  const slots = shown.filter((one) => !one.hollow).length || 1;
  let slot = -1;
  for (const one of shown) {
    slot += one.hollow ? 0 : 1; // a hollow series is drawn at the position of the one before it
    const shift = spec.x.categories ? ((slot + 0.5) / slots - 0.5) * Math.min(x.step * 0.7, 90) : 0;
    places.push(...drawSeries(svg, one, x, y, shift, spec));
  }
  return { svg, places };
}

// The ends of a point's interval, clipped to the possible range: an accuracy is between 0 and 100.
const ends = (p, { y: { possible: [least, most] = [-Infinity, Infinity] } }) => [
  Math.max(p.y - (p.half ?? 0), least),
  Math.min(p.y + (p.half ?? 0), most),
];

function drawSeries(svg, one, x, y, shift, spec) {
  const { color, line, marker: shape } = one.style;
  const spots = one.points.map((p) => ({ cx: x.place(p.x) + shift, cy: y.place(p.y), point: p, series: one }));
  if (one.joined && spots.length > 1)
    svg.append(
      s("path", {
        d: "M" + spots.map((p) => `${p.cx.toFixed(1)} ${p.cy.toFixed(1)}`).join("L"),
        fill: "none",
        stroke: color,
        "stroke-width": one.thin ? 1.1 : 1.8,
        "stroke-dasharray": DASHES[line],
        "stroke-opacity": one.thin ? 0.7 : 0.9,
      }),
    );
  for (const spot of spots) {
    if (spot.point.half) {
      const [low, high] = ends(spot.point, spec);
      svg.append(
        s("line", {
          x1: spot.cx,
          x2: spot.cx,
          y1: y.place(low),
          y2: y.place(high),
          stroke: color,
          "stroke-width": 1.2,
        }),
      );
    }
    if (!one.thin || spots.length === 1)
      svg.append(
        marker(
          shape,
          spot.cx,
          spot.cy,
          one.hollow ? 4.5 : 3.6,
          one.hollow ? { fill: "none", stroke: color, "stroke-width": 1.4, "stroke-opacity": 0.8 } : { fill: color },
        ),
      );
  }
  return spots;
}
