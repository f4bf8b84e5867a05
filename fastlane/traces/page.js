// The page's own script: it draws what the page holds. Whatever came from a file becomes text, never markup.
(() => {
  "use strict";

  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const entries = data.entries;
  const comparisons = data.comparisons.filter((each) => each.groups.length);

  const WORDS = {
    prepare: ["prepare", "planning and encoding, before anything is sent"],
    retries: ["earlier attempts", "attempts that failed or lost, and the pauses after them"],
    queue: ["queue", "waiting for a slot or a connection"],
    dns: ["DNS", "looking up the host's address"],
    connect: ["connect", "opening the TCP connection"],
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
  const LEADING = new Set(["prepare", "retries", "queue", "dns", "connect", "tls", "send", "server", "unsplit"]);
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
  function gain(ratio) {
    if (ratio === undefined || ratio === null || !Number.isFinite(ratio) || ratio <= 0) return "";
    if (ratio >= 0.995 && ratio <= 1.005) return "the same";
    return ratio < 1 ? `${(1 / ratio).toFixed(2)}× faster` : `${ratio.toFixed(2)}× slower`;
  }
  const change = (ratio, arm) => h("span", { class: gainClass(ratio, arm) }, ` ${ratio < 1 ? "−" : "+"}${Math.abs((1 - ratio) * 100).toFixed(0)} %`);
  // A difference of an arm that chance may have made is neither good nor bad.
  const isShown = (arm) => comparison().arms.some((each) => each.arm === arm && each.shown);
  const gainClass = (ratio, arm) => (ratio === undefined || ratio === null || (ratio >= 0.995 && ratio <= 1.005) || !isShown(arm) ? "soft" : ratio < 1 ? "good" : "bad");

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
    view: "browse", shown: [], at: 0, opened: null, experiment: 0, errors: false, slow: false, misses: false, query: "", sort: {}, row: null,
  };
  const lengths = entries.map((entry) => entry.d || 0).sort((one, other) => one - other);
  const slowest = lengths.length ? lengths[Math.min(lengths.length - 1, Math.ceil(lengths.length * 0.9))] : Infinity;
  const longest = Math.max(1e-6, lengths.length ? lengths[Math.min(lengths.length - 1, Math.floor(lengths.length * 0.98))] : 1);
  const isSlow = (entry) => lengths.length >= 5 && (entry.d || 0) >= slowest && slowest > lengths[0];
  const misses = entries.filter((entry) => entry.y).length;
  const failures = entries.filter((entry) => entry.e || entry.x).length;

  const SORTS = {
    browse: [
      ["start", "In order of time", null],
      ["newest", "Newest first", (one, other) => entries[other].t - entries[one].t],
      ["longest", "Longest first", (one, other) => (entries[other].d || 0) - (entries[one].d || 0)],
      ["shortest", "Shortest first", (one, other) => (entries[one].d || 0) - (entries[other].d || 0)],
      ["ttft", "Latest first token", (one, other) => (entries[other].f || 0) - (entries[one].f || 0)],
      ["calls", "Most calls", (one, other) => (entries[other].c || 0) - (entries[one].c || 0)],
    ],
    compare: [
      ["start", "In order of time", null],
      ["gain", "Largest gain first", (one, other) => bestRatio(one) - bestRatio(other)],
      ["loss", "Largest loss first", (one, other) => worstRatio(other) - worstRatio(one)],
      ["longest", "Longest baseline first", (one, other) => baseOf(other).d - baseOf(one).d],
    ],
  };
  const comparison = () => comparisons[state.experiment];
  const members = (group) => comparison().groups[group][1];
  const baseOf = (group) => entries[members(group)[comparison().baseline]];
  function ratios(group) {
    const base = baseOf(group).d;
    return Object.entries(members(group)).filter(([arm]) => arm !== comparison().baseline).map(([, at]) => (base ? entries[at].d / base : 1));
  }
  const bestRatio = (group) => Math.min(...ratios(group));
  const worstRatio = (group) => Math.max(...ratios(group));
  const armsShown = () => (comparison() ? comparison().arms.map((arm) => arm.arm) : []);

  // The list: only what can be seen of it exists.
  const list = $("list");
  const space = $("space");
  const itemHeight = () => (state.view === "browse" ? 66 : 34 + 19 * armsShown().length);

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
    const browse = state.view === "browse";
    const all = browse ? entries.map((_, index) => index) : comparison().groups.map((_, index) => index);
    const kept = all.filter((index) => {
      const own = browse ? [index] : Object.values(members(index));
      if (state.errors && !own.some((at) => entries[at].e || entries[at].x)) return false;
      if (state.misses && !own.some((at) => entries[at].y)) return false;
      if (state.slow && !(browse ? isSlow(entries[index]) : worstRatio(index) > 1)) return false;
      return !wanted.length || own.some((at) => matches(at, wanted));
    });
    const order = (SORTS[state.view].find(([name]) => name === state.sort[state.view]) || [])[2];
    if (order) kept.sort(order);
    const before = state.shown[state.at];
    state.shown = kept;
    state.at = Math.max(0, kept.indexOf(before));
    const what = browse ? "entries" : "pairs";
    $("count").textContent = kept.length === all.length ? `${count(all.length)} ${what}` : `${count(kept.length)} of ${count(all.length)} ${what}`;
    draw(true);
  }

  function draw(whole) {
    const height = itemHeight();
    space.style.height = `${state.shown.length * height}px`;
    if (whole) space.replaceChildren();
    const from = Math.max(0, Math.floor(list.scrollTop / height) - 6);
    const to = Math.min(state.shown.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + 6);
    const have = new Map([...space.children].map((node) => [Number(node.dataset.at), node]));
    for (const [at, node] of have) if (at < from || at >= to) node.remove();
    for (let at = from; at < to; at += 1) if (!have.has(at)) space.append(item(at, height));
    for (const node of space.children) node.setAttribute("aria-selected", String(Number(node.dataset.at) === state.at));
    if (state.shown.length) list.setAttribute("aria-activedescendant", `item-${state.at}`);
    else list.removeAttribute("aria-activedescendant");
    if (!state.shown.length) space.replaceChildren(h("p", { class: "empty" }, "Nothing matches."));
  }

  function item(at, height) {
    const inner = state.view === "browse" ? browseItem(entries[state.shown[at]]) : compareItem(state.shown[at]);
    return h("div", {
      class: "item", role: "option", id: `item-${at}`, "data-at": at, "aria-setsize": state.shown.length, "aria-posinset": at + 1,
      style: { top: `${at * height}px`, height: `${height}px` },
      onclick: () => { choose(at); open(); },
    }, inner);
  }

  function browseItem(entry) {
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

  function compareItem(group) {
    const all = Object.values(members(group)).map((at) => entries[at].d);
    const most = Math.max(...all, 1e-6);
    const base = baseOf(group);
    const isPair = armsShown().length === 2;
    const ratio = bestRatio(group);
    return [
      h("div", { class: "line" }, h("span", { class: "name" }, base.n), h("span", { class: "rest" }, moment(base.t)), isPair ? h("span", { class: `time ${gainClass(ratio, armsShown()[1])}` }, gain(ratio)) : null),
      armsShown().filter((arm) => arm in members(group)).map((arm) => {
        const entry = entries[members(group)[arm]];
        return h("div", { class: isPair ? "arm" : "arm many" }, h("span", { class: "who" }, arm), mini(entry, most), h("span", { class: "time" }, ms(entry.d), isPair || entry === base ? null : change(entry.d / base.d, arm)));
      }),
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
    const height = itemHeight();
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
    state.opened = index;
    hideDetails();
    fill($("opened"), backButton(), state.view === "browse" ? entryView(index) : groupView(index));
    $("opened").scrollTop = 0;
  }
  const backButton = () => h("button", { type: "button", class: "back", onclick: back }, "← Back to the list");
  function back() {
    delete document.body.dataset.open;
    if (state.view === "compare") summary();
    list.focus();
  }

  // All entries.
  function overall() {
    state.opened = null;
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
    state.row = [index, at];
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
    state.row = null;
  }
  function closeDetails() {
    hideDetails();
    const chosen = document.querySelector(".fall .row[aria-selected='true']");
    if (chosen) { chosen.setAttribute("aria-selected", "false"); chosen.focus(); }
  }

  // Baseline beside optimised.
  function groupView(group) {
    const own = members(group);
    const arms = armsShown().filter((arm) => arm in own);
    const base = baseOf(group);
    const most = Math.max(...arms.map((arm) => entries[own[arm]].d));
    const phases = data.phases.filter((phase) => arms.some((arm) => (entries[own[arm]].p || {})[phase]));
    const value = (arm, phase) => (entries[own[arm]].p || {})[phase];
    return [
      h("button", { type: "button", class: "wide-back", onclick: () => { summary(); list.focus(); } }, "← All pairs"),
      h("div", { class: "head" }, h("h2", null, base.n), ...arms.slice(1).map((arm) => { const ratio = entries[own[arm]].d / base.d; return h("span", { class: gainClass(ratio, arm) }, `${arm}: ${gain(ratio)}`); })),
      h("p", { class: "sub" }, `unit ${comparison().groups[group][0]} of ${comparison().experiment} · ${moment(base.t, true)} · all waterfalls on one scale`),
      phaseBars("On one scale", arms, phases, value, (arm) => entries[own[arm]].d, (arm) => entries[own[arm]].d / base.d),
      phaseTable("Phase by phase", arms, phases, value, (arm) => entries[own[arm]].d, (arm) => entries[own[arm]].f),
      arms.map((arm) => waterfall(own[arm], most, `${arm}: ${ms(entries[own[arm]].d)}${arm === comparison().baseline ? "" : `, ${gain(entries[own[arm]].d / base.d)}`}`)),
    ];
  }
  function phaseBars(title, arms, phases, value, total, ratio) {
    const sums = arms.map((arm) => phases.reduce((sum, phase) => sum + (value(arm, phase) || 0), 0));
    const most = Math.max(...sums, ...arms.map(total), 1e-6);
    const bars = arms.map((arm) => {
      let from = 0;
      const pieces = phases.filter((phase) => value(arm, phase)).map((phase) => {
        const size = value(arm, phase);
        const made = piece(phase, from, size, most);
        made.title = `${WORDS[phase][0]}: ${ms(size)}`;
        if (size / most > 0.13) made.textContent = WORDS[phase][0];
        from += size;
        return made;
      });
      return h("div", { class: "one" }, h("span", { class: "who", title: arm }, arm), h("div", { class: "stack", "aria-hidden": "true" }, pieces),
        h("span", null, h("b", null, ms(total(arm))), arm === arms[0] ? "" : h("span", { class: gainClass(ratio(arm), arm) }, ` ${gain(ratio(arm))}`)));
    });
    return h("div", { class: "card" }, h("h3", null, title), h("div", { class: "bars" }, bars),
      h("ul", { class: "legend" }, phases.map((phase) => h("li", { title: WORDS[phase][1] }, swatch(phase), WORDS[phase][0]))));
  }
  function phaseTable(title, arms, phases, value, total, first) {
    const base = arms[0];
    const others = arms.slice(1);
    function ratioCell(phase, arm, one, other) {
      const isSplit = !LEADING.has(phase) || !(value(base, "unsplit") || value(arm, "unsplit")) || (value(base, "unsplit") && value(arm, "unsplit") && phase === "unsplit");
      if (!isSplit || (!one && !other)) return h("td", { class: "soft" }, "–");
      if (!other) return h("td", { class: isShown(arm) ? "good" : "soft" }, "none left");
      if (!one) return h("td", { class: isShown(arm) ? "bad" : "soft" }, "added");
      // What hardly counts is no gain and no loss, however many times it is.
      const isTiny = Math.max(one, other) < 0.01 * total(base);
      return h("td", { class: isTiny ? "soft" : gainClass(other / one, arm) }, gain(other / one));
    }
    const line = (phase, name, get, kind, sign) => h("tr", { class: kind }, h("th", { scope: "row" }, sign, " ", name), arms.map((arm) => h("td", null, get(arm) ? ms(get(arm)) : "–")), others.map((arm) => ratioCell(phase, arm, get(base), get(arm))));
    const withFirst = arms.some((arm) => first(arm));
    return h("div", { class: "card wide" }, h("h3", null, title), h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Phase"), arms.map((arm) => h("th", { scope: "col" }, arm)), others.map((arm) => h("th", { scope: "col" }, `${arm} is`)))),
      h("tbody", null, phases.map((phase) => line(phase, WORDS[phase][0], (arm) => value(arm, phase), "", swatch(phase))),
        withFirst ? line("", "Time to first token", (arm) => first(arm) ?? undefined, "sum", "◆") : null, line("", "Total", total, "sum", ""))));
  }
  function summary() {
    state.opened = null;
    hideDetails();
    const one = comparison();
    const seconds = (value) => (value === null || value === undefined ? undefined : value * 1e3);
    const says = one.arms.slice(1).map((arm) => h("p", { class: !arm.shown ? "" : arm.median_ratio < 1 ? "faster" : "slower" },
      h("strong", null, `${arm.arm}: ${arm.shown ? "" : "no difference shown, "}${gain(arm.median_ratio)}`), ` ${gain(arm.median_ratio) === "the same" ? "as" : "than"} ${one.baseline} in the median of ${some(arm.pairs, "pair")} (${percent(arm.median_ratio)} of its time; all time together: ${percent(arm.total_ratio)}). `,
      `${some(arm.faster, "pair")} got faster, `, h("span", { class: arm.shown && arm.slower ? "bad" : "" }, `${arm.slower} got slower`), arm.shown ? "" : ": no more than chance makes of equal arms (sign test)", arm.pairs < 20 ? ". That is few: take it for an example, not for a finding." : "."));
    const shown = data.phases.filter((phase) => one.arms.some((arm) => arm.phases_s[phase]));
    const by = new Map(one.arms.map((arm) => [arm.arm, arm]));
    const notes = [`Each pair is one unit of the experiment, sent in ${some(one.arms.length, "arm")}; ${some(one.groups.length, "unit")} ${one.groups.length === 1 ? "is" : "are"} shown.`, "The bars and the table are medians of each phase: they need not add up to the median of the whole, and the ratio of two medians is not the median of the ratios."];
    for (const arm of one.arms) if (arm.unsplit) notes.push(`${arm.arm}: for ${some(arm.unsplit, "request")} nobody said what the time until the first token was spent with, so it stands unsplit.`);
    if (one.failed) notes.push(`${one.failed} failed and ${one.failed === 1 ? "is" : "are"} left out.`);
    if (one.alone) notes.push(`${one.alone} without a counterpart ${one.alone === 1 ? "is" : "are"} left out.`);
    if (one.unnamed) notes.push(`${one.unnamed} without a unit ${one.unnamed === 1 ? "is" : "are"} left out.`);
    fill($("opened"), backButton(), h("div", { class: "head" }, h("h2", null, one.experiment)), h("p", { class: "sub" }, `${one.baseline} beside ${one.arms.slice(1).map((arm) => arm.arm).join(", ")}`),
      h("div", { class: "says" }, says),
      phaseBars("Median phases", one.arms.map((arm) => arm.arm), shown, (arm, phase) => seconds(by.get(arm).phases_s[phase]), (arm) => seconds(by.get(arm).median_s), (arm) => by.get(arm).median_ratio),
      phaseTable("Phase by phase: medians, and their ratios", one.arms.map((arm) => arm.arm), shown, (arm, phase) => seconds(by.get(arm).phases_s[phase]), (arm) => seconds(by.get(arm).median_s), (arm) => seconds(by.get(arm).time_to_first_token_s)),
      h("div", { class: "card" }, h("h3", null, "What is in these figures"), h("ul", { class: "notes" }, notes.map((note) => h("li", null, note)))));
  }

  // Controls.
  function fillSorts() {
    $("sort").replaceChildren(...SORTS[state.view].map(([name, label]) => h("option", { value: name }, label)));
    $("sort").value = state.sort[state.view] || "start";
  }
  function setView(view) {
    if (view === "compare" && !comparisons.length) return;
    state.view = view;
    document.body.dataset.view = view;
    delete document.body.dataset.open;
    $("view-browse").setAttribute("aria-pressed", String(view === "browse"));
    $("view-compare").setAttribute("aria-pressed", String(view === "compare"));
    $("experiment").hidden = view === "browse" || comparisons.length < 2;
    $("only-slow").textContent = view === "browse" ? "Slow" : "Slower only";
    $("only-slow").title = view === "browse" ? `The slowest tenth: ${ms(slowest)} or more` : "Pairs in which an arm took longer than the baseline";
    list.setAttribute("aria-label", view === "browse" ? "User actions and calls" : "Pairs");
    state.at = 0;
    state.shown = [];
    list.scrollTop = 0;
    fillSorts();
    filter();
    if (view === "compare") summary(); else if (entries.length > 1) overall(); else if (state.shown.length) open(false); else $("opened").replaceChildren();
    if (view === "compare" && isNarrow()) document.body.dataset.open = "";
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
    timer = setTimeout(() => { state.query = $("search").value; filter(); list.scrollTop = 0; choose(0); if (state.view === "browse") preview(); }, 60);
  });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); list.focus(); }
    else if (event.key === "Escape") { $("search").value = ""; $("search").dispatchEvent(new Event("input")); list.focus(); event.stopPropagation(); }
  });
  $("sort").addEventListener("change", () => { state.sort[state.view] = $("sort").value; filter(); choose(0); if (state.view === "browse") preview(); });
  $("experiment").addEventListener("change", () => { state.experiment = Number($("experiment").value); setView("compare"); });
  $("only-errors").addEventListener("click", (event) => toggleFilter("errors", event.currentTarget));
  $("only-slow").addEventListener("click", (event) => toggleFilter("slow", event.currentTarget));
  $("only-misses").addEventListener("click", (event) => toggleFilter("misses", event.currentTarget));
  $("view-browse").addEventListener("click", () => setView("browse"));
  $("view-compare").addEventListener("click", () => setView("compare"));
  $("all").addEventListener("click", () => { setView("browse"); if (entries.length > 1) overall(); if (isNarrow()) document.body.dataset.open = ""; });
  $("help-button").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  list.addEventListener("scroll", () => draw(false), { passive: true });
  window.addEventListener("resize", () => draw(false));

  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(list.clientHeight / itemHeight()) - 1);
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
      e: () => $("only-errors").click(), s: () => $("only-slow").click(), m: () => $("only-misses").click(), b: () => setView(state.view === "browse" ? "compare" : "browse"),
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
  $("views").hidden = !comparisons.length;
  $("experiment").replaceChildren(...comparisons.map((each, at) => h("option", { value: at }, each.experiment)));
  $("glossary").replaceChildren(...data.phases.map((phase) => h("div", null, h("dt", null, swatch(phase), " ", WORDS[phase][0]), h("dd", null, WORDS[phase][1]))));
  setView("browse");
  list.focus({ preventScroll: true });
})();
