// Tables that can be sorted by any column; a button shows the rows beyond the first page.

const PAGE = 100;

// columns: { name, title, value(row), text(row), numeric, node(row) }; details(row) opens below its row.
function dataTable(host, { caption, columns, rows, details, sort }) {
  let order = sort ?? null; // [column, descending]
  let limit = PAGE;
  const head = columns.map((column, i) => {
    const button = h(
      "button",
      {
        type: "button",
        title: column.title,
        onclick: () => {
          order = order && order[0] === i ? [i, !order[1]] : [i, Boolean(column.numeric)];
          render();
        },
      },
      column.name,
    );
    return h("th", { scope: "col", class: column.numeric && "num" }, button);
  });
  const body = h("tbody");
  const more = h("button", {
    type: "button",
    class: "more",
    onclick: () => {
      limit = limit === PAGE ? Infinity : PAGE;
      render();
    },
  });
  host.append(
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), body),
    ),
    more,
  );

  function sorted() {
    if (!order) return rows;
    const [index, descending] = order;
    const value = columns[index].value;
    const keyed = rows.map((row, i) => [value(row), i, row]);
    keyed.sort(([a, i], [b, j]) => {
      const [noA, noB] = [a === null || a === undefined, b === null || b === undefined];
      if (noA || noB) return noA - noB || i - j; // missing values stay at the bottom in either order
      const compared =
        typeof a === "number" && typeof b === "number"
          ? a - b
          : String(a).localeCompare(String(b), "en", { numeric: true });
      return (descending ? -compared : compared) || i - j;
    });
    return keyed.map((entry) => entry[2]);
  }

  function render() {
    head.forEach((cell, i) => {
      const state = order && order[0] === i ? (order[1] ? "descending" : "ascending") : "none";
      cell.setAttribute("aria-sort", state);
    });
    const shown = sorted().slice(0, limit);
    body.replaceChildren(...shown.map(rowOf));
    if (!shown.length)
      body.append(h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, "No rows match this selection.")));
    more.hidden = rows.length <= PAGE;
    more.textContent = limit === PAGE ? `Show all ${rows.length} rows` : `Show the first ${PAGE} rows`;
  }

  function rowOf(row) {
    const cells = columns.map((column, i) => {
      const content = column.node
        ? column.node(row)
        : column.text
          ? column.text(row)
          : String(column.value(row) ?? "–");
      return h(i === 0 ? "th" : "td", { class: column.numeric && "num", scope: i === 0 && "row" }, content);
    });
    const line = h("tr", {}, cells);
    if (details) opener(line, row);
    return line;
  }

  function opener(line, row) {
    const first = line.firstElementChild;
    const button = h("button", { type: "button", class: "open", "aria-expanded": "false" }, ...first.childNodes);
    first.replaceChildren(button);
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) line.nextElementSibling.remove();
      else line.after(h("tr", { class: "details" }, h("td", { colspan: columns.length }, details(row))));
    });
  }

  render();
  return (next) => {
    rows = next;
    limit = PAGE;
    render();
  };
}
