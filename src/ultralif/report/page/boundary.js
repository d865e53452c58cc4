// A network's classes in the plane through three samples, once for each spike mode.

function boundaries(host, networks, runs) {
  perNetwork(host, networks, runs, (box, { slices }) => {
    const planes = Object.entries(slices.cells).map(([mode, cells]) => plane(slices, mode, bytes(cells)));
    box.append(
      h("div", { class: "planes" }, planes),
      h(
        "p",
        { class: "quiet" },
        `The plane passes through three test samples (circles), each averaged over time and held for ${slices.steps} ${slices.steps === 1 ? "step" : "steps"}. Colours show classes, paler where the two best scores are close.`,
      ),
    );
  });
}

function plane(slices, mode, cells) {
  const size = slices.resolution;
  const seen = groupBy([...cells.keys()], (i) => cells[i] >> 3);
  const found = [...seen].filter(([, of]) => of.length > size * size * 0.015);
  const label = `${MODES[mode]}: ${seen.size} ${seen.size === 1 ? "class" : "classes"}`;
  const canvas = canvasOf(size, size, label, (x, y) => {
    const cell = cells[(size - 1 - y) * size + x]; // rows go up
    return [hue(cell >> 3), 0.25 + (0.75 * (cell & 7)) / 7];
  });
  const names = found.map(([which, of]) => {
    const middle = of
      .reduce(([x, y], i) => [x + (i % size), y + Math.floor(i / size)], [0, 0])
      .map((sum) => sum / of.length);
    const near = of.reduce((a, b) => (away(b, middle, size) < away(a, middle, size) ? b : a)); // a cell of the class itself
    return s(
      "text",
      { x: (near % size) + 0.5, y: size - Math.floor(near / size) + 1, "text-anchor": "middle" },
      slices.classes[which],
    );
  });
  const spots = slices.places.map(([x, y]) =>
    s("circle", {
      cx: ((x / slices.extent + 1) / 2) * size,
      cy: ((1 - y / slices.extent) / 2) * size,
      r: 1.3,
      fill: "#fff",
      stroke: "#14171b",
      "stroke-width": 0.6,
    }),
  );
  return h(
    "figure",
    {},
    h(
      "div",
      { class: "slice" },
      canvas,
      s("svg", { viewBox: `0 0 ${size} ${size}`, "aria-hidden": "true" }, spots, names),
    ),
    h("figcaption", {}, label),
  );
}

const away = (i, [x, y], size) => ((i % size) - x) ** 2 + (Math.floor(i / size) - y) ** 2;
