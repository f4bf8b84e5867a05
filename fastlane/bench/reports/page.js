"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

  // Light, dark, or as the system has it.
  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const show = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = "Theme: " + theme;
  };
  const other = () => {
    const now = themes.indexOf(root.dataset.theme || "auto");
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    // From "auto", first to what differs from what is seen.
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    show(order[(order.indexOf(themes[now]) + 1) % 3]);
  };
  button.hidden = false;
  button.addEventListener("click", other);
  document.addEventListener("keydown", (event) => {
    if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) other();
    if (event.key === "Escape") { hide(); light(null); }
  });

  // What a mark stands for: by pointer, and by keys on a focused chart.
  const tip = document.getElementById("tip");
  let marked = null;
  const hide = () => {
    tip.hidden = true;
    if (marked) marked.classList.remove("at");
    marked = null;
  };
  const tell = (mark, x, y) => {
    if (marked !== mark) {
      hide();
      marked = mark;
      mark.classList.add("at");
      tip.textContent = mark.dataset.tip;
      tip.hidden = false;
    }
    const box = tip.getBoundingClientRect();
    const left = Math.max(6, Math.min(x + 12, innerWidth - box.width - 6));
    const top = y - box.height - 12 < 4 ? y + 16 : y - box.height - 12;
    tip.style.left = left + "px";
    tip.style.top = top + "px";
  };
  // The nearest mark within reach: points are small, fingers are not.
  const nearest = (svg, x, y) => {
    let best = null, least = 22;
    for (const mark of svg.marks || (svg.marks = all("[data-tip]", svg))) {
      const box = mark.getBoundingClientRect();
      const dx = Math.max(box.left - x, 0, x - box.right), dy = Math.max(box.top - y, 0, y - box.bottom);
      const far = Math.hypot(dx, dy) + Math.hypot(x - (box.left + box.right) / 2, y - (box.top + box.bottom) / 2) / 1e4;
      if (far < least) { least = far; best = mark; }
    }
    return best;
  };
  for (const svg of all(".chart svg")) {
    const point = (event) => {
      const mark = nearest(svg, event.clientX, event.clientY);
      if (mark) tell(mark, event.clientX, event.clientY); else hide();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", hide);
    const marks = all("[data-tip]", svg);
    if (!marks.length) continue;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const at = marks.indexOf(marked), last = marks.length - 1;
      const next = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const box = marks[next].getBoundingClientRect();
      tell(marks[next], (box.left + box.right) / 2, box.top);
    });
  }
  addEventListener("scroll", hide, { passive: true });

  // One arm before all others, in every chart.
  const arms = all(".arms button");
  const light = (chosen) => {
    for (const arm of arms) arm.setAttribute("aria-pressed", String(arm === chosen));
    for (const mark of all(".chart .dim")) mark.classList.remove("dim");
    if (!chosen) return;
    const others = arms.filter((arm) => arm.dataset.colour !== chosen.dataset.colour);
    const selector = others.map((arm) => `.chart svg .f${arm.dataset.colour}, .chart svg .s${arm.dataset.colour}`).join(", ");
    if (selector) for (const mark of all(selector)) mark.classList.add("dim");
  };
  for (const arm of arms) {
    arm.disabled = false;
    arm.addEventListener("click", () => light(arm.getAttribute("aria-pressed") === "true" ? null : arm));
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
        const value = (row) => {
          const cell = row.cells[column];
          if (!cell || cell.colSpan > 1 || cell.dataset.value === undefined) return null;
          const number = Number(cell.dataset.value);
          return cell.dataset.value === "" || Number.isNaN(number) ? cell.dataset.value : number;
        };
        const sorted = !way ? written : written.slice().sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          // What has no figure stays at the end, whichever way.
          if (x === null || y === null) return (x === null) - (y === null);
          const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
          return way === "ascending" ? order : -order;
        });
        body.append(...sorted);
      });
    });
  }
  addEventListener("beforeprint", () => { for (const each of all("details")) each.open = true; });
})();
