// Show which neurons fire when; the pointer or the arrow keys select one of them.

const RASTER = { row: 5, left: 34, bottom: 30 };

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
    const svg = s(
      "svg",
      {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: "slider",
        tabindex: "0",
        "aria-orientation": "vertical",
        "aria-valuemin": 0,
        "aria-valuemax": layer.neurons - 1,
        "aria-label": `Neuron of the raster: ${layer.neurons} neurons${names} over ${steps} steps`,
      },
      band,
      s("path", { d: path, class: "dots" }),
    );
    for (let n = 0; n < layer.neurons; n += 16)
      svg.append(s("text", { x: RASTER.left - 6, y: top(n) + 7, "text-anchor": "end" }, String(n)));
    const every = Math.max(1, Math.ceil(steps / 10));
    for (let t = 0; t < steps; t += every)
      svg.append(
        s("text", { x: RASTER.left + (t + 0.5) * column, y: height - 18, "text-anchor": "middle" }, String(t + 1)),
      );
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
    const under = (event) =>
      layer.neurons - 1 - Math.floor((event.clientY - svg.getBoundingClientRect().top - 4) / RASTER.row);
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
