"use strict";
(() => {
  const body = document.querySelector("#calls tbody"), state = document.getElementById("state"), pause = document.getElementById("pause");
  const ms = (seconds) => seconds === null ? "–" : shown.duration(seconds * 1000);
  const make = (name, text, style) => { const made = document.createElement(name); if (text !== undefined) made.textContent = text; if (style) made.className = style; return made; };
  let paused = false, last = "";

  const row = (call, longest) => {
    const line = make("tr", undefined, call.error ? "failed" : [call.is_running ? "running" : "", call.is_slow ? "slow" : ""].join(" ").trim());
    const at = new Date(call.at_ms), bar = make("i", undefined, "bar"), bars = make("td", undefined, "bars");
    const first = call.time_to_first_token_s === null ? call.duration_s : call.time_to_first_token_s;
    bar.style.width = `${100 * first / longest}%`;
    bars.append(bar);
    const cached = call.input_tokens && call.cached_tokens !== null ? shown.percent(call.cached_tokens / call.input_tokens) : "–";
    const reused = call.connection_reused === null ? "–" : call.connection_reused ? "reused" : "new";
    const why = [call.error ? `failed: ${call.error}` : "", call.is_running ? "running" : "", call.is_slow ? "slow" : "", ...call.reasons].filter(Boolean).join(" · ");
    line.append(
      make("td", at.toLocaleTimeString("en-GB")), make("td", call.model, "left"), make("td", ms(call.time_to_first_token_s)), bars,
      make("td", ms(call.duration_s)), make("td", call.tokens_per_second === null ? "–" : shown.figure(call.tokens_per_second)), make("td", cached), make("td", call.price === null ? "–" : String(Number(call.price.toPrecision(4)))),
      make("td", reused, "left"), make("td", call.attempts), make("td", why, call.reasons.some((each) => each.startsWith("cache miss")) ? "why left miss" : "why left"),
    );
    return line;
  };
  const show = ({ saved, calls }) => {
    const told = { "calls": shown.count(saved.calls), "failed": shown.count(saved.failed), "slow": shown.count(saved.slow) };
    if (saved.input_tokens) told["input read from cache"] = `${shown.count(saved.cached_tokens)} tokens, ${shown.percent(saved.cached_tokens / saved.input_tokens)}`;
    if (saved.reused) told["connections not opened"] = shown.count(saved.reused) + (saved.opening_s ? `, ${shown.duration(saved.opening_s * 1000)}` : "");
    if (saved.calls) document.getElementById("saved").replaceChildren(...Object.entries(told).map(([name, text]) => { const group = make("div"); group.append(make("dt", name), make("dd", text)); return group; }));
    const longest = Math.max(...calls.map((call) => call.time_to_first_token_s === null ? call.duration_s : call.time_to_first_token_s));
    body.replaceChildren(...calls.slice().reverse().map((call) => row(call, longest)));
    state.textContent = calls.length ? "" : "Waiting for the first call.";
  };
  const ask = async () => {
    if (!paused) {
      try {
        const answer = await (await fetch("calls")).text();
        if (answer !== last) show(JSON.parse(last = answer));
        else if (last && body.rows.length) state.textContent = "";
      } catch { state.textContent = "fastlane live has ended."; }
    }
    setTimeout(ask, 500);
  };
  pause.addEventListener("click", () => { paused = !paused; pause.setAttribute("aria-pressed", String(paused)); pause.textContent = paused ? "Go on" : "Pause"; });
  ask();
})();
