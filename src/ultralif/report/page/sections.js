// Additional sections from the report's author: tables, and verdicts with a filter.

function addSection(section, index) {
  const id = `section-${index}`;
  const body = h("div");
  const title = h("h2", { id: `${id}-title` }, section.title);
  const box = h("section", { id, class: "added", "aria-labelledby": `${id}-title` });
  box.append(title, h("p", { class: "quiet" }, section.text), body);
  find("playground").before(box);
  const link = h("li", {}, h("a", { href: `#${id}` }, section.title));
  document.querySelector('nav a[href="#playground"]').parentElement.before(link);
  for (const table of section.tables) {
    if (table.columns.includes("verdict")) verdictTable(body, table);
    else foldedTable(body, table, section.tables.length < 3);
  }
}

// A table that is built when it is first opened.
function foldedTable(host, table, open) {
  const box = h("details", { class: "table", open }, h("summary", {}, table.title));
  host.append(box);
  let made = false;
  const make = () => {
    if (made || !box.open) return;
    made = true;
    dataTable(box, { caption: table.title, rows: table.rows, columns: columnsOf(table) });
    box.append(...table.notes.map((note) => h("p", { class: "quiet" }, note)));
  };
  box.addEventListener("toggle", make);
  make();
}

function columnsOf(table) {
  return table.columns.map((name, i) => {
    const numeric = table.rows.every((row) => leading(row[i]) !== null || /^-?$|not|data/.test(row[i]));
    return {
      name: name || "source",
      numeric,
      value: (row) => (numeric ? leading(row[i]) : row[i]),
      text: (row) => (row[i] === "-" ? "–" : row[i]),
    };
  });
}

// The number at the start of a cell such as "96.52 ± 0.11".
function leading(text) {
  const found = /^[+-]?\d+(\.\d+)?/.exec(text);
  return found ? Number(found[0]) : null;
}

const VERDICTS = {
  holds: "good",
  "holds weaker": "fair",
  "holds as corrected": "fair",
  "does not hold": "bad",
  fails: "bad",
  "not tested": "none",
  unsettled: "none",
};

function verdictTable(host, table) {
  const at = table.columns.indexOf("verdict");
  const counts = [...groupBy(table.rows, (row) => row[at])].map(([name, of]) => `${name}: ${of.length}`);
  host.append(h("h3", {}, table.title), h("p", {}, counts.join(", ") + "."));
  const box = h("div");
  let update;
  const names = unique(table.rows.map((row) => row[at]));
  host.append(
    h(
      "div",
      { class: "bar" },
      choose(
        "Show",
        [["", "all verdicts"], ...names.map((name) => [name, name])],
        (value) => update(table.rows.filter((row) => !value || row[at] === value)),
        "",
      ),
    ),
    box,
  );
  const columns = table.columns.map((name, i) => ({ name, value: (row) => row[i] }));
  columns[at].node = (row) => h("span", { class: `verdict ${VERDICTS[row[at]] ?? "none"}` }, row[at]);
  update = dataTable(box, { caption: table.title, rows: table.rows, columns });
}
