// The page's own script: it draws what the page holds. Whatever came from a file becomes text, never markup.
(() => {
  "use strict";

  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const entries = data.entries;

  const WORDS = {
    prepare: ["prepare", "planning and encoding, before anything is sent"],
    retries: ["earlier attempts", "attempts that failed or lost, and the pauses after them"],
    queue: ["queue", "waiting for a slot or a connection"],
    dns: ["DNS", "looking up the host's address"],
    connect: ["connect", "opening the TCP connection"],
    proxy: ["proxy", "the proxy: TCP and TLS with it, and its tunnel"],
    tls: ["TLS", "the TLS handshake"],
    send: ["send", "from the request's first byte to its last"],
    server: ["server wait", "from the last byte sent to the first token: network, provider's queue, prefill"],
    wait: ["wait", "from the last byte sent to the head of the answer"],
    first_token: ["first token", "from the head of the answer to its first token"],
    unsplit: ["to first token, not split", "nobody said what this time was spent with"],
    decode: ["decode", "from the first token to the last"],
    validate: ["validate", "the answer was checked"],
    other: ["other", "what no phase accounts for: the client's own work, gaps, the application"],
    connection: ["connection", "opening a connection"],
    action: ["user action", ""], call: ["call", ""], attempt: ["HTTP request", ""], pause: ["pause", "between attempts"], span: ["span", ""],
  };
  const PLAIN = new Set(["action", "call", "attempt", "span"]);
  const MOST_ROWS = 1000;

  // Elements. Text goes in as text.
  function h(tag, props, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(props || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name === "class") node.className = value;
      else if (name === "style") for (const [key, to] of Object.entries(value)) node.style.setProperty(key, to);
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat(9)) if (child !== null && child !== undefined && child !== false) node.append(child);
    return node;
  }

  function fill(node, ...children) {
    node.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== undefined));
  }

  const ms = (value) => (value === undefined || value === null ? "–" : shown.duration(value));
  const count = (value) => (value === undefined ? "–" : shown.count(value));
  const some = shown.counted, percent = shown.percent;
  function moment(at, long) {
    const date = new Date(at);
    if (Number.isNaN(date.getTime())) return "no date";
    const pad = (number, size) => String(number).padStart(size || 2, "0");
    const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
    return long ? `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${time}` : time;
  }
  // What an entry's list row does not show is read when somebody opens it, or searches.
  let lines = null;
  const read = new Map();
  function detail(index) {
    if (!read.has(index)) {
      lines = lines || $("lines").textContent.split("\n");
      if (read.size > 300) read.clear();
      read.set(index, JSON.parse(lines[index]));
    }
    return read.get(index);
  }
  const words = [];
  function haystack(index) {
    if (words[index] === undefined) {
      lines = lines || $("lines").textContent.split("\n");
      const entry = entries[index];
      const all = [entry.n, entry.k, entry.r, entry.e, entry.y, ...(entry.m || [])];
      const told = JSON.parse(lines[index]);
      all.push(told.trace, ...told.within, ...(told.experiment || []));
      for (const row of told.rows) {
        all.push(row.l, row.n, row.e, row.i, row.c, row.v, row.m);
        for (const [name, value] of row.a || []) all.push(`${name}=${text(value)}`);
        for (const [name, , pairs] of row.w || []) all.push(name, ...pairs.map(([key, value]) => `${key}=${text(value)}`));
      }
      words[index] = all.filter(Boolean).join("\n").toLowerCase();
    }
    return words[index];
  }
  const text = (value) => (Array.isArray(value) ? value.map(text).join(", ") : value === null ? "null" : String(value));

  // State.
  const state = {
    shown: [], at: 0, errors: false, slow: false, misses: false, query: "", sort: "start",
  };
  const lengths = entries.map((entry) => entry.d || 0).sort((one, other) => one - other);
  const slowest = lengths.length ? lengths[Math.min(lengths.length - 1, Math.ceil(lengths.length * 0.9))] : Infinity;
  const longest = Math.max(1e-6, lengths.length ? lengths[Math.min(lengths.length - 1, Math.floor(lengths.length * 0.98))] : 1);
  const isSlow = (entry) => lengths.length >= 5 && (entry.d || 0) >= slowest && slowest > lengths[0];
  const misses = entries.filter((entry) => entry.y).length;
  const failures = entries.filter((entry) => entry.e || entry.x).length;

  const SORTS = [
    ["start", "In order of time", null],
    ["newest", "Newest first", (one, other) => entries[other].t - entries[one].t],
    ["longest", "Longest first", (one, other) => (entries[other].d || 0) - (entries[one].d || 0)],
    ["shortest", "Shortest first", (one, other) => (entries[one].d || 0) - (entries[other].d || 0)],
    ["ttft", "Latest first token", (one, other) => (entries[other].f || 0) - (entries[one].f || 0)],
    ["calls", "Most calls", (one, other) => (entries[other].c || 0) - (entries[one].c || 0)],
  ];

  // The list: only what can be seen of it exists.
  const list = $("list");
  const space = $("space");
  const ITEM_HEIGHT = 66;

  function terms(query) {
    return (query.toLowerCase().match(/-?"[^"]*"?|\S+/g) || [])
      .map((word) => ({ not: word.startsWith("-") && word.length > 1, word: word.replace(/^-(?=.)/, "").replace(/"/g, "") }))
      .filter(({ word }) => word);
  }
  function matches(index, wanted) {
    return wanted.every(({ not, word }) => haystack(index).includes(word) !== not);
  }
  function filter() {
    const wanted = terms(state.query);
    const kept = entries.map((_, index) => index).filter((index) => {
      const entry = entries[index];
      if (state.errors && !(entry.e || entry.x)) return false;
      if (state.misses && !entry.y) return false;
      if (state.slow && !isSlow(entry)) return false;
      return matches(index, wanted);
    });
    const order = SORTS.find(([name]) => name === state.sort)[2];
    if (order) kept.sort(order);
    const before = state.shown[state.at];
    state.shown = kept;
    state.at = Math.max(0, kept.indexOf(before));
    $("count").textContent = `${kept.length === entries.length ? "" : `${count(kept.length)} of `}${count(entries.length)} entries`;
    draw(true);
  }

  function draw(whole) {
    const height = ITEM_HEIGHT;
    space.style.height = `${state.shown.length * height}px`;
    if (whole) space.replaceChildren();
    const from = Math.max(0, Math.floor(list.scrollTop / height) - 6);
    const to = Math.min(state.shown.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + 6);
    const have = new Map([...space.children].map((node) => [Number(node.dataset.at), node]));
    for (const [at, node] of have) if (at < from || at >= to) node.remove();
    for (let at = from; at < to; at += 1) if (!have.has(at)) space.append(item(at));
    for (const node of space.children) node.setAttribute("aria-selected", String(Number(node.dataset.at) === state.at));
    if (state.shown.length) list.setAttribute("aria-activedescendant", `item-${state.at}`);
    else list.removeAttribute("aria-activedescendant");
    if (!state.shown.length) space.replaceChildren(h("p", { class: "empty" }, "Nothing matches."));
  }

  function item(at) {
    return h("div", {
      class: "item", role: "option", id: `item-${at}`, "data-at": at, "aria-setsize": state.shown.length, "aria-posinset": at + 1,
      style: { top: `${at * ITEM_HEIGHT}px`, height: `${ITEM_HEIGHT}px` },
      onclick: () => { choose(at); open(); },
    }, itemParts(entries[state.shown[at]]));
  }

  function itemParts(entry) {
    const models = (entry.m || []).filter(Boolean);
    const tags = [];
    if (entry.e) tags.push(h("span", { class: "tag bad" }, `✕ ${entry.e}`));
    else if (entry.x) tags.push(h("span", { class: "tag" }, `↻ ${some(entry.x, "failed attempt")}`));
    if (entry.y) tags.push(h("span", { class: "tag miss", title: entry.y }, entry.y));
    if (isSlow(entry)) tags.push(h("span", { class: "tag slow" }, "slow"));
    const says = [moment(entry.t)];
    if (entry.c > 1) says.push(some(entry.c, "call"));
    if (entry.f !== undefined) says.push(`first token ${ms(entry.f)}`);
    if (entry.r) says.push(entry.r);
    const name = models.filter((model) => !entry.n.includes(model)).join(", ");
    return [
      h("div", { class: "line" }, h("span", { class: "name" }, entry.n), h("span", { class: "rest" }, name), h("span", { class: "time" }, ms(entry.d))),
      mini(entry, longest),
      h("div", { class: "line below" }, h("span", { class: "rest" }, says.join(" · ")), tags),
    ];
  }

  const piece = (phase, from, size, whole) => h("i", {
    class: `ph-${WORDS[phase] ? phase : "span"}`, style: { left: `${(100 * from) / whole}%`, width: `${(100 * size) / whole}%` },
  });
  function mini(entry, most) {
    const whole = Math.max(most, 1e-6);
    const parts = (entry.g || []).map(([phase, from, size]) => piece(phase, from, size, whole));
    return h("div", { class: "mini", "aria-hidden": "true" }, h("i", { class: "whole", style: { left: "0", width: `${Math.min(100, (100 * (entry.d || 0)) / whole)}%` } }), parts);
  }

  function choose(at) {
    if (!state.shown.length) return;
    state.at = Math.max(0, Math.min(state.shown.length - 1, at));
    const height = ITEM_HEIGHT;
    const top = state.at * height;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    draw(false);
  }
  const isNarrow = () => window.matchMedia("(max-width: 760px)").matches;
  let asked = 0;
  function preview() {
    if (isNarrow()) return;
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(() => open(false));
  }
  function open(deliberate = true) {
    const index = state.shown[state.at];
    if (index === undefined) return;
    if (deliberate) document.body.dataset.open = "";
    hideDetails();
    fill($("opened"), backButton(), entryView(index));
    $("opened").scrollTop = 0;
  }
  const backButton = () => h("button", { type: "button", class: "back", onclick: back }, "← Back to the list");
  function back() {
    delete document.body.dataset.open;
    list.focus();
  }

  // All entries.
  function overall() {
    hideDetails();
    const calls = entries.filter((entry) => entry.c), total = {};
    for (const entry of calls) for (const [phase, value] of Object.entries(entry.p || {})) total[phase] = (total[phase] || 0) + value;
    const phases = Object.fromEntries(data.phases.filter((phase) => total[phase]).map((phase) => [phase, total[phase]]));
    const middle = (values) => { const sorted = values.sort((one, other) => one - other); return sorted.length ? ms(sorted[Math.floor((sorted.length - 1) / 2)]) : "–"; };
    const told = [
      ["Calls", count(calls.reduce((sum, entry) => sum + entry.c, 0))], ["Failed", count(entries.filter((entry) => entry.e).length)],
      ["Duration, p50", middle(calls.map((entry) => entry.d))], ["First token, p50", middle(calls.map((entry) => entry.f).filter((value) => value !== undefined))],
      ["Cache misses", count(misses)],
    ];
    const slow = entries.map((entry, index) => [index, entry.d || 0]).sort((one, other) => other[1] - one[1]).slice(0, 5);
    const line = ([index, took]) => h("li", null, h("button", { type: "button", onclick: () => { choose(Math.max(0, state.shown.indexOf(index))); open(); } }, `${entries[index].n} · ${ms(took)}${entries[index].y ? ` · ${entries[index].y}` : ""}${entries[index].e ? ` · ✕ ${entries[index].e}` : ""}`));
    fill($("opened"), backButton(), h("div", { class: "head" }, h("h2", null, "All entries")),
      h("dl", { class: "figures" }, told.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))),
      parts({ p: phases, c: calls.length, d: Infinity }),
      h("div", { class: "card" }, h("h3", null, "The slowest"), h("ul", { class: "slowest" }, slow.map(line))));
  }

  // One entry.
  function entryView(index) {
    const entry = entries[index];
    const told = detail(index);
    const lonely = entry.k === "action" && !entry.c ? h("p", { class: "hint" }, "No call belongs to this action. A thread takes part in it with contextvars.copy_context().run(...).") : null;
    return [heading(entry, told), lonely, figures(entry, told), parts(entry), waterfall(index, entry.d, "Waterfall"), callTable(entry, told)];
  }
  function heading(entry, told) {
    const around = told.within.length ? ` · within ${told.within.join(" › ")}` : "";
    const arm = told.experiment ? ` · ${told.experiment[0]}: ${told.experiment[1]}` : "";
    return [
      h("div", { class: "head" }, h("h2", null, entry.n), entry.e ? h("span", { class: "tag bad" }, `✕ ${entry.e}`) : null, entry.y ? h("span", { class: "tag miss" }, entry.y) : null),
      h("p", { class: "sub" }, `${WORDS[entry.k] ? WORDS[entry.k][0] : "trace"} · ${moment(entry.t, true)} · trace ${told.trace}${around}${arm}`),
    ];
  }
  function figures(entry, told) {
    const out = [];
    const add = (name, value, note) => { if (value !== undefined && value !== null && value !== "") out.push(h("div", null, h("dt", null, name), h("dd", null, value, note ? h("small", null, note) : null))); };
    const sum = (key) => { const known = told.calls.map((call) => call[key]).filter((value) => value !== undefined); return known.length ? known.reduce((one, other) => one + other, 0) : undefined; };
    const only = told.calls.length === 1 ? told.calls[0] : null;
    add(entry.k === "action" ? "Application end-to-end" : "Duration", ms(entry.d), told.calls.length > 1 ? some(told.calls.length, "call") : "");
    if (only) {
      add("Time to first token", only.ttft === undefined ? undefined : ms(only.ttft), only.ttft_kind);
      add("Decode rate", only.tokens_per_second === undefined ? undefined : `${shown.figure(only.tokens_per_second)} tokens/s`);
    }
    const input = sum("input_tokens");
    const cached = sum("cached_tokens");
    const expected = sum("expected");
    add("Input tokens", input === undefined ? undefined : count(input));
    add("Read from cache", cached === undefined ? undefined : count(cached), [input ? percent(cached / input) : "", expected === undefined ? "" : `expected ${count(expected)}`].filter(Boolean).join(", "));
    const output = sum("output_tokens");
    const reasoning = sum("reasoning_tokens");
    add("Output tokens", output === undefined ? undefined : count(output), reasoning ? `${count(reasoning)} reasoning` : "");
    if (only) {
      add("Model", only.response_model || only.model, [only.response_model && only.model !== only.response_model ? `asked for ${only.model}` : "", only.provider].filter(Boolean).join(" · "));
      add("Route", only.route_reason, only.asked);
      add("Connection", only.connection_reused === undefined ? undefined : only.connection_reused ? "reused" : "opened", [only.server, only.encoding].filter(Boolean).join(" · "));
      add("Attempts", only.attempt_count === undefined ? undefined : count(only.attempt_count), only.end ? `ended: ${only.end}` : "");
    }
    return h("dl", { class: "figures" }, out);
  }
  function parts(entry) {
    const known = Object.entries(entry.p || {});
    const whole = known.reduce((sum, [, value]) => sum + value, 0);
    if (!whole || !entry.c) return null;
    let from = 0;
    const bar = known.map(([phase, value]) => { const made = piece(phase, from, value, whole); from += value; return made; });
    const over = whole > entry.d * 1.02 ? h("p", { class: "hint" }, "Calls ran at the same time: their phases add up to more than the whole.") : null;
    return h("div", { class: "card" }, h("h3", null, "Where the time went"),
      h("div", { class: "stack", "aria-hidden": "true" }, bar),
      h("ul", { class: "legend" }, known.map(([phase, value]) => h("li", { title: WORDS[phase][1] }, swatch(phase), WORDS[phase][0], " ", h("b", null, ms(value)), " ", h("span", { class: "soft" }, percent(value / whole))))), over);
  }
  const swatch = (phase) => h("i", { class: `swatch ph-${phase}`, "aria-hidden": "true" });

  function callTable(entry, told) {
    if (told.calls.length < 2) return null;
    const cell = (value) => h("td", null, value);
    const head = ["Call", "Started", "First token", "Duration", "Input", "Cached", "Output", "tokens/s", "Attempts", "Connection"];
    return h("div", { class: "card wide" }, h("h3", null, "Calls"), h("table", null,
      h("thead", null, h("tr", null, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, told.calls.map((call) => h("tr", null,
        h("th", { scope: "row" }, call.response_model || call.model || "call", call.error ? h("span", { class: "bad" }, ` ✕ ${call.error}`) : null),
        cell(ms(call.at)), cell(ms(call.ttft)), cell(ms(call.ms)), cell(count(call.input_tokens)), cell(count(call.cached_tokens)), cell(count(call.output_tokens)),
        cell(call.tokens_per_second === undefined ? "–" : shown.figure(call.tokens_per_second)), cell(count(call.attempt_count)), cell(call.connection_reused === undefined ? "–" : call.connection_reused ? "reused" : "opened"))))));
  }

  // A waterfall is a tree for the keyboard and for screen readers.
  function niceStep(whole) {
    const raw = whole / 5;
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  }
  function axis(whole) {
    const step = niceStep(whole);
    const ticks = [];
    for (let at = 0; at <= whole * 0.97; at += step) ticks.push(h("span", { class: "tick", style: { left: `${(100 * at) / whole}%` } }, at === 0 ? "0" : shortly(at)));
    return { node: h("div", { class: "axis", "aria-hidden": "true" }, h("span"), h("div", { class: "ticks" }, ticks), h("span")), step };
  }
  const shortly = (value) => (value < 1000 ? `${Number(value.toPrecision(4))} ms` : `${Number((value / 1000).toPrecision(4))} s`);

  function waterfall(index, whole, title) {
    const told = detail(index);
    const rows = told.rows;
    const scale = Math.max(whole || 0, 1e-3);
    const { node, step } = axis(scale);
    const closed = new Set();
    const tree = h("div", { class: "fall", role: "tree", "aria-label": title });
    const gap = `${(100 * step) / scale}%`;
    const grid = `repeating-linear-gradient(90deg, var(--grid) 0 1px, transparent 1px ${gap})`;
    let all = rows.length <= MOST_ROWS;
    const firsts = [];
    let around = null;
    rows.forEach((row, at) => {
      if (around && (row.o || 0) <= around[0]) around = null;
      if (row.f !== undefined) around = [row.o || 0, row.f];
      firsts[at] = around ? around[1] : undefined;
    });
    const hasBelow = (at) => at + 1 < rows.length && (rows[at + 1].o || 0) > (rows[at].o || 0);
    function visible() {
      const kept = [];
      let under = Infinity;
      for (let at = 0; at < rows.length; at += 1) {
        const depth = rows[at].o || 0;
        if (depth > under || (rows[at].p === "first_token" && !(rows[at].d >= 0.05))) continue;
        under = closed.has(at) ? depth : Infinity;
        kept.push(at);
        if (!all && kept.length >= MOST_ROWS) break;
      }
      return kept;
    }
    function render(focus) {
      const kept = visible();
      const lowest = Math.min(...rows.map((row) => row.o || 0));
      tree.replaceChildren(node, ...kept.map((at) => rowNode(at, (rows[at].o || 0) - lowest)));
      if (!all) tree.append(h("button", { type: "button", onclick: () => { all = true; render(); } }, `Show all ${count(rows.length)} spans`));
      const nodes = tree.querySelectorAll(".row");
      const wanted = focus === undefined ? null : tree.querySelector(`[data-row="${focus}"]`);
      if (wanted) { wanted.tabIndex = 0; wanted.focus(); } else if (nodes.length) nodes[0].tabIndex = 0;
    }
    function rowNode(at, depth) {
      const row = rows[at];
      const phase = WORDS[row.p] ? row.p : "span";
      const open = hasBelow(at) ? !closed.has(at) : undefined;
      const label = PLAIN.has(phase) ? row.l : WORDS[phase][0];
      const lost = /late|lost|cancelled/.test(row.n || "");
      const says = [label, row.n, row.e ? `failed: ${row.e}` : "", `${ms(row.d || 0)}, ${ms(row.s || 0)} after the start`, row.f === undefined ? "" : `first token after ${ms(row.f)}`].filter(Boolean).join(", ");
      const lane = h("div", { class: "lane", "aria-hidden": "true", style: { "--ticks": grid } },
        h("div", { class: `bar ph-${phase}${row.e ? " bad" : ""}${lost ? " lost" : ""}`, style: { left: `${(100 * (row.s || 0)) / scale}%`, width: `${(100 * (row.d || 0)) / scale}%` } }),
        firsts[at] === undefined ? null : h("div", { class: row.f === undefined ? "first" : "first here", style: { left: `${(100 * firsts[at]) / scale}%` } }));
      return h("div", {
        class: "row", role: "treeitem", tabindex: -1, "data-row": at, "data-phase": phase, "aria-level": depth + 1, "aria-expanded": open === undefined ? undefined : String(open),
        "aria-label": says, "aria-selected": "false", title: `${row.l}\n${ms(row.d || 0)}, from ${ms(row.s || 0)} to ${ms((row.s || 0) + (row.d || 0))}${row.n ? `\n${row.n}` : ""}`,
        onclick: (event) => { if (event.target.classList.contains("twist") && open !== undefined) toggle(at, open); else { mark(at); show(index, at); } },
        onkeydown: (event) => key(event, at, open),
      },
      h("div", { class: "label", style: { "--depth": depth } }, h("span", { class: "twist", "aria-hidden": "true" }, open === undefined ? "" : open ? "▾" : "▸"), h("span", { class: "text" }, label),
        row.e ? h("span", { class: "tag bad" }, `✕ ${row.e}`) : null, row.n ? h("span", { class: "tag" }, row.n) : null, row.q && !row.n ? h("span", { class: "tag" }, "↗ link") : null),
      lane, h("div", { class: "took" }, ms(row.d || 0)));
    }
    function toggle(at, isOpen) {
      if (isOpen) closed.add(at); else closed.delete(at);
      render(at);
    }
    function mark(at) {
      for (const each of document.querySelectorAll(".fall .row[aria-selected='true']")) each.setAttribute("aria-selected", "false");
      const chosen = tree.querySelector(`[data-row="${at}"]`);
      if (chosen) { chosen.setAttribute("aria-selected", "true"); focusRow(chosen); }
    }
    function focusRow(target) {
      for (const each of tree.querySelectorAll(".row[tabindex='0']")) each.tabIndex = -1;
      target.tabIndex = 0;
      target.focus();
    }
    function key(event, at, isOpen) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const nodes = [...tree.querySelectorAll(".row")];
      const here = nodes.indexOf(event.currentTarget);
      const to = { ArrowDown: here + 1, j: here + 1, ArrowUp: here - 1, k: here - 1, Home: 0, End: nodes.length - 1, PageDown: here + 12, PageUp: here - 12 }[event.key];
      if (to !== undefined) {
        focusRow(nodes[Math.max(0, Math.min(nodes.length - 1, to))]);
        if (!$("details").hidden) { const other = Number(document.activeElement.dataset.row); mark(other); show(index, other, false); }
      } else if (event.key === "ArrowRight") { if (isOpen === false) toggle(at, false); else if (isOpen && nodes[here + 1]) focusRow(nodes[here + 1]); }
      else if (event.key === "ArrowLeft") {
        if (isOpen) toggle(at, true);
        else { const up = nodes.slice(0, here).reverse().find((each) => Number(each.getAttribute("aria-level")) < Number(event.currentTarget.getAttribute("aria-level"))); if (up) focusRow(up); }
      } else if (event.key === "Enter" || event.key === " ") { mark(at); show(index, at, true); }
      else return;
      event.preventDefault();
      event.stopPropagation();
    }
    render();
    const drawn = rows.some((row) => row.i === undefined && row.p !== "pause") ? h("p", { class: "hint" }, "Phases without spans are drawn from the durations on the call's span: their lengths are measured, their places follow.") : null;
    return h("div", { class: "card" }, h("h3", null, title), tree, drawn);
  }

  // Details of one span.
  function show(index, at, focus) {
    const row = detail(index).rows[at];
    const told = entries[index];
    const pairs = (all) => h("dl", { class: "pairs" }, all.map(([name, value]) => h("div", null, h("dt", null, breakable(lit(name))), h("dd", null, lit(text(value))))));
    const own = [["phase", (WORDS[row.p] || WORDS.span)[0]], ["duration", ms(row.d || 0)], ["after the start", ms(row.s || 0)], ["started", moment(told.t + (row.s || 0), true)]];
    if (row.e) own.push(["error", row.e]);
    if (row.m) own.push(["status", row.m]);
    if (row.f !== undefined) own.push(["first token", ms(row.f)]);
    for (const [key, name] of [["k", "kind"], ["c", "made by"], ["v", "service"], ["i", "span"]]) if (row[key]) own.push([name, row[key]]);
    const parts = [
      h("div", { class: "head" }, h("h2", null, row.i === undefined ? WORDS[row.p][0] : row.l), h("button", { type: "button", id: "close", "aria-label": "Close the details", onclick: closeDetails }, "✕")),
      pairs(own),
    ];
    if (row.i === undefined) parts.push(h("p", { class: "hint" }, row.p === "pause" ? "From the end of the attempt before to the next one." : `${WORDS[row.p][1]}. It has no span: its length is on the call's span.`));
    if (row.a && row.a.length) parts.push(h("h3", null, `Attributes (${row.a.length})`), pairs([...row.a].sort(([one], [other]) => (one < other ? -1 : 1))));
    for (const [name, after, all] of row.w || []) parts.push(h("h3", null, `Event ${name}, ${ms(after)} after the start`), pairs(all));
    for (const [trace, span, all] of row.q || []) parts.push(h("h3", null, "Link"), pairs([["span", span], ["trace", trace], ...all]));
    if (row.i !== undefined) parts.push(h("p", { class: "hint" }, h("button", { type: "button", id: "copy", onclick: (event) => copy(row, event.currentTarget) }, "Copy as JSON")));
    const details = $("details");
    details.replaceChildren(...parts);
    details.hidden = false;
    document.querySelector("main").classList.add("with-details");
    details.scrollTop = 0;
    const chosen = document.querySelector(".fall .row[aria-selected='true']");
    if (chosen) chosen.scrollIntoView({ block: "nearest" });
    if (focus) details.focus();
  }
  // Long names may go on in the next line after a dot.
  const breakable = (parts) => [parts].flat().map((part) => (typeof part === "string" ? part.split(/(?<=[._])/).map((word) => [word, h("wbr")]) : part));
  function lit(value) {
    const wanted = terms(state.query).filter(({ not, word }) => !not && word.length > 1).map(({ word }) => word.split("=").pop()).filter(Boolean);
    const low = value.toLowerCase();
    const found = wanted.map((word) => [low.indexOf(word), word.length]).find(([at]) => at >= 0);
    if (!found || low.length !== value.length) return value;
    const [at, size] = found;
    return [value.slice(0, at), h("mark", null, value.slice(at, at + size)), value.slice(at + size)];
  }
  function copy(row, button) {
    const plain = JSON.stringify({ name: row.l, span_id: row.i, duration_ms: row.d, attributes: Object.fromEntries(row.a || []) }, null, 2);
    const done = () => { button.textContent = "Copied"; };
    if (navigator.clipboard) navigator.clipboard.writeText(plain).then(done, () => { button.textContent = "The browser does not allow it"; });
  }
  function hideDetails() {
    $("details").hidden = true;
    $("details").replaceChildren();
    document.querySelector("main").classList.remove("with-details");
  }
  function closeDetails() {
    hideDetails();
    const chosen = document.querySelector(".fall .row[aria-selected='true']");
    if (chosen) { chosen.setAttribute("aria-selected", "false"); chosen.focus(); }
  }

  // Controls.
  function begin() {
    delete document.body.dataset.open;
    filter();
    if (entries.length > 1) overall(); else open(false);
  }
  function toggleFilter(name, button) {
    state[name] = !state[name];
    button.setAttribute("aria-pressed", String(state[name]));
    filter();
    list.scrollTop = 0;
    choose(0);
    preview();
  }
  let timer = 0;
  $("search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { state.query = $("search").value; filter(); list.scrollTop = 0; choose(0); preview(); }, 60);
  });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); list.focus(); }
    else if (event.key === "Escape") { $("search").value = ""; $("search").dispatchEvent(new Event("input")); list.focus(); event.stopPropagation(); }
  });
  $("sort").addEventListener("change", () => { state.sort = $("sort").value; filter(); choose(0); preview(); });
  $("only-errors").addEventListener("click", (event) => toggleFilter("errors", event.currentTarget));
  $("only-slow").addEventListener("click", (event) => toggleFilter("slow", event.currentTarget));
  $("only-misses").addEventListener("click", (event) => toggleFilter("misses", event.currentTarget));
  $("all").addEventListener("click", () => { begin(); if (isNarrow()) document.body.dataset.open = ""; });
  $("help-button").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  list.addEventListener("scroll", () => draw(false), { passive: true });
  window.addEventListener("resize", () => draw(false));

  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(list.clientHeight / ITEM_HEIGHT) - 1);
    const to = { ArrowDown: state.at + 1, j: state.at + 1, ArrowUp: state.at - 1, k: state.at - 1, Home: 0, End: state.shown.length - 1, PageDown: state.at + page, PageUp: state.at - page }[event.key];
    if (to !== undefined) { choose(to); preview(); }
    else if (event.key === "Enter" || event.key === " " || event.key === "ArrowRight") {
      cancelAnimationFrame(asked);
      open();
      const first = $("opened").querySelector(".fall .row");
      if (first) first.focus(); else $("opened").focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    if (event.key === "Escape") {
      if (!$("details").hidden) closeDetails();
      else if ($("opened").contains(document.activeElement) || "open" in document.body.dataset) back();
      event.preventDefault();
      return;
    }
    if (event.target.matches("input, select, textarea")) return;
    const does = {
      "/": () => { if (isNarrow()) back(); $("search").focus(); $("search").select(); }, "?": () => $("help").showModal(),
      e: () => $("only-errors").click(), s: () => $("only-slow").click(), m: () => $("only-misses").click(),
    }[event.key];
    if (does) { does(); event.preventDefault(); }
  });

  // Beginning.
  const actions = entries.filter((entry) => entry.k === "action").length;
  const calls = entries.reduce((sum, entry) => sum + (entry.c || 0), 0);
  $("source").textContent = [data.source, actions ? some(actions, "user action") : "", some(calls, "call"), some(data.spans, "span"), ...data.notes].filter(Boolean).join(" · ");
  $("source").title = $("source").textContent;
  $("only-errors").textContent = `Errors (${count(failures)})`;
  $("only-errors").title = "What failed, or had an attempt that did";
  $("only-misses").textContent = `Cache misses (${count(misses)})`;
  $("only-misses").hidden = !misses;
  $("only-slow").title = `The slowest tenth: ${ms(slowest)} or more`;
  $("sort").replaceChildren(...SORTS.map(([name, label]) => h("option", { value: name }, label)));
  $("glossary").replaceChildren(...data.phases.map((phase) => h("div", null, h("dt", null, swatch(phase), " ", WORDS[phase][0]), h("dd", null, WORDS[phase][1]))));
  begin();
  list.focus({ preventScroll: true });
})();
