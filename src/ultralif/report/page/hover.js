// Show a chart's values: for one point by pointer or keys, and for all points as a table.

// Show the point nearest to the pointer, or the next one for an arrow key.
function hover(svg, places, tip, frame) {
  const ring = s("circle", { r: 7, class: "ring", visibility: "hidden" });
  svg.append(ring);
  let at = -1;
  const show = (index) => {
    at = index;
    const spot = places[index];
    ring.setAttribute("cx", spot.cx);
    ring.setAttribute("cy", spot.cy);
    ring.setAttribute("visibility", "visible");
    tip.replaceChildren(
      h("b", { class: "key", color: spot.series.style.color }, spot.series.name),
      ...spot.point.lines.map((text) => h("span", {}, text)),
    );
    tip.hidden = false;
    const left = Math.min(Math.max(spot.cx - tip.offsetWidth / 2, 0), frame.clientWidth - tip.offsetWidth);
    const above = spot.cy - tip.offsetHeight - 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${above >= 0 ? above : spot.cy + 14}px`;
  };
  const hide = () => {
    at = -1;
    tip.hidden = true;
    ring.setAttribute("visibility", "hidden");
  };
  const point = (event) => {
    const area = svg.getBoundingClientRect();
    const [px, py] = [event.clientX - area.left, event.clientY - area.top];
    let best = -1,
      least = 60 ** 2;
    places.forEach((spot, i) => {
      const distance = (spot.cx - px) ** 2 + (spot.cy - py) ** 2;
      if (distance < least) [best, least] = [i, distance];
    });
    if (best < 0) hide();
    else if (best !== at) show(best);
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide()); // a finger leaves immediately
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!move) return;
    event.preventDefault();
    show((at + move + places.length) % places.length);
  });
}

// The same numbers as a table, built when it is opened.
function numbers(shown, spec) {
  const details = h(
    "details",
    {
      class: "numbers",
      ontoggle: () => {
        if (!details.open || details.children.length > 1) return;
        const head = h(
          "tr",
          {},
          ["series", spec.x.label, spec.y.label].map((name) => h("th", { scope: "col" }, name)),
        );
        const rows = shown.flatMap((one) =>
          one.points
            .slice(0, 200)
            .map((p) =>
              h(
                "tr",
                {},
                h("td", {}, one.name),
                h("td", { class: "num" }, shortNumber(p.x)),
                h("td", { class: "num" }, spell(p.y) + (p.half ? ` ± ${spell(p.half)}` : "")),
              ),
            ),
        );
        details.append(
          h(
            "div",
            { class: "scroll" },
            h(
              "table",
              {},
              h("caption", {}, spec.title ?? "Numbers"),
              h("thead", {}, head),
              h("tbody", {}, rows.slice(0, 2000)),
            ),
          ),
        );
      },
    },
    h("summary", {}, "Numbers"),
  );
  return details;
}
