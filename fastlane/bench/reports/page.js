"use strict";
(() => {
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

  for (const dot of all("[data-colour]")) dot.style.background = dot.dataset.colour;

  // `ast`: expressions are interpreted, for the page allows no code but its own.
  const options = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { theme: "custom", disableDefaultStyle: true } };
  for (const spec of all("script.spec")) {
    vegaEmbed(spec.previousElementSibling, JSON.parse(spec.textContent), options).catch((error) => { spec.previousElementSibling.textContent = String(error); });
  }

  // Tables that are long can be sorted; a third press restores the order in which they were written.
  for (const table of all("table[data-sortable]")) {
    const body = table.tBodies[0], written = Array.from(body.rows);
    all("thead th", table).forEach((head, column) => {
      const press = document.createElement("button");
      press.type = "button";
      press.append(...head.childNodes);
      head.append(press);
      press.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        for (const each of all("th[aria-sort]", table)) each.removeAttribute("aria-sort");
        const way = before === "ascending" ? "descending" : before === "descending" ? null : "ascending";
        if (way) head.setAttribute("aria-sort", way);
        const text = (row) => row.cells[column].textContent;
        // A figure begins its text: "1,720 [1,690, 1,750]".
        const value = (row) => parseFloat(text(row).replaceAll(",", ""));
        const sorted = !way ? written : written.slice().sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          // What has no figure stays at the end, whichever way.
          if (isNaN(x) !== isNaN(y)) return isNaN(x) - isNaN(y);
          const order = isNaN(x) ? text(a).localeCompare(text(b), "en", { numeric: true }) : x - y;
          return way === "ascending" ? order : -order;
        });
        body.append(...sorted);
      });
    });
  }
  addEventListener("beforeprint", () => { for (const each of all("details")) each.open = true; });
})();
