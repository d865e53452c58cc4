// The paper's tables and the verdicts on what it says.

function paperTables(host, data) {
  for (const table of data.tables) {
    const box = h("details", { class: "table", open: data.tables.length < 3 }, h("summary", {}, table.title));
    host.append(box);
    let made = false;
    const make = () => {
      if (made || !box.open) return;
      made = true;
      const numeric = table.columns.map((_, i) =>
        table.rows.every((row) => leading(row[i]) !== null || /^-?$|not|data/.test(row[i])),
      );
      dataTable(box, {
        caption: table.title,
        rows: table.rows,
        columns: table.columns.map((name, i) => ({
          name: name || "source",
          numeric: numeric[i],
          value: (row) => (numeric[i] ? leading(row[i]) : row[i]),
          text: (row) => (row[i] === "-" ? "–" : row[i]),
        })),
      });
      box.append(...table.notes.map((note) => h("p", { class: "quiet" }, note)));
    };
    box.addEventListener("toggle", make);
    make();
  }
}

// The number a cell begins with, as "96.52 ± 0.11" does.
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

function verdictTable(host, caption, verdicts) {
  const counts = [...groupBy(verdicts, (verdict) => verdict.verdict)].map(([name, of]) => `${name}: ${of.length}`);
  host.append(h("h3", {}, caption), h("p", {}, counts.join(", ") + "."));
  const box = h("div");
  let update;
  const names = unique(verdicts.map((verdict) => verdict.verdict));
  host.append(
    h(
      "div",
      { class: "bar" },
      choose(
        "Show",
        [["", "all verdicts"], ...names.map((name) => [name, name])],
        (value) => update(verdicts.filter((one) => !value || one.verdict === value)),
        "",
      ),
    ),
    box,
  );
  update = dataTable(box, {
    caption,
    rows: verdicts,
    columns: [
      { name: "Claim", value: (one) => one.claim },
      { name: "Section", value: (one) => one.section },
      {
        name: "Verdict",
        value: (one) => one.verdict,
        node: (one) => h("span", { class: `verdict ${VERDICTS[one.verdict] ?? "none"}` }, one.verdict),
      },
      { name: "Found", value: (one) => one.measured },
    ],
  });
}
