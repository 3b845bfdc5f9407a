// Sorts a table by a click on a column's head, and filters the rows of the report's tables with one box. Without this script
// the page shows plain tables. `report.html#sort=table-1:3:descending&filter=gcn` opens it sorted and filtered.
"use strict";
(() => {
  const NUMBER = /^[-+−]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?(?=$|[\s%x×])/i;
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const tables = [...document.querySelectorAll("table.data")];
  const filtered = tables.filter((table) => !table.closest("details")); // not the data of figures

  const textOf = (row, column) => row.cells[column].textContent.trim();

  function number(text) {
    const found = NUMBER.exec(text);
    return found ? Number(found[0].replaceAll(",", "").replace("−", "-")) : NaN;
  }

  // Compares numbers if every text that begins with a digit is a number. Words such as OOM then come last in both directions.
  function comparison(texts, sign) {
    const beginning = texts.filter((text) => /^\d/.test(text) || NUMBER.test(text));
    if (!beginning.length || !beginning.every((text) => NUMBER.test(text))) {
      return (a, b) => sign * words.compare(a, b);
    }
    return (a, b) => {
      const [x, y] = [number(a), number(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || words.compare(a, b);
      return sign * (x - y);
    };
  }

  function sort(table, column) {
    const head = table.tHead.rows[0].cells;
    const direction = head[column].getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const rows = [...table.tBodies[0].rows];
    const compare = comparison(rows.map((row) => textOf(row, column)), direction === "ascending" ? 1 : -1);
    rows.sort((a, b) => compare(textOf(a, column), textOf(b, column)));
    table.tBodies[0].append(...rows);
    for (const cell of head) cell.setAttribute("aria-sort", "none");
    head[column].setAttribute("aria-sort", direction);
  }

  function makeSortable(table) {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      button.addEventListener("click", () => sort(table, column));
      cell.append(button);
      cell.setAttribute("aria-sort", "none");
    });
  }

  function makeFilter() {
    const box = document.createElement("div");
    box.className = "filter";
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Filter rows, such as: gcn failed";
    input.setAttribute("aria-label", "Filter the rows of tables: only rows that contain every word are shown");
    const said = document.createElement("output");
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let [shown, all] = [0, 0];
      for (const row of filtered.flatMap((table) => [...table.tBodies[0].rows])) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += !row.hidden;
        all += 1;
      }
      said.textContent = wanted.length ? `${shown} of ${all} rows` : "";
    });
    box.append(input, said);
    // Above the first long list: what a reader asks for first is above it, and has few rows.
    const cards = document.querySelector(".cards");
    const after = (table) => !cards || cards.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING;
    const list = filtered.find(after)?.closest("section");
    if (list) list.before(box);
    else document.querySelector("main").prepend(box);
    return input;
  }

  tables.forEach(makeSortable);
  const input = makeFilter();
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const wish of asked.getAll("sort")) {
    const [name, column, direction] = wish.split(":");
    const button = document.getElementById(name)?.querySelectorAll("thead button")[Number(column)];
    for (let i = 0; button && i < (direction === "descending" ? 2 : 1); i += 1) button.click();
  }
  if (asked.has("filter")) {
    input.value = asked.get("filter");
    input.dispatchEvent(new Event("input"));
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
})();
