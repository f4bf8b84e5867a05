"use strict";
// Numbers as records/formatting.py writes them.
const shown = (() => {
  const figure = (value) => {
    const size = Math.abs(value);
    return size >= 99.95 ? value.toLocaleString("en", { maximumFractionDigits: 0 }) : value.toFixed(size >= 9.995 ? 1 : 2);
  };
  const count = (value) => value.toLocaleString("en");
  return {
    figure,
    count,
    counted: (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`,
    duration: (ms) => (ms === 0 ? "0 ms" : Math.abs(ms) < 999.5 ? `${figure(ms)} ms` : `${figure(ms / 1e3)} s`),
    percent: (share) => `${share >= 0.0995 ? (share * 100).toFixed(0) : (share * 100).toFixed(1).replace(/\.0$/, "")} %`,
  };
})();
// Light, dark, or as the system has it.
(() => {
  const root = document.documentElement, button = document.getElementById("theme"), themes = ["auto", "dark", "light"];
  const key = "fastlane-theme";
  let theme = "auto";
  const set = (wanted) => {
    theme = wanted;
    if (wanted === "auto") delete root.dataset.theme; else root.dataset.theme = wanted;
    button.textContent = `Theme: ${wanted}`;
    try { localStorage.setItem(key, wanted); } catch { /* Some browsers keep nothing for files. */ }
  };
  const next = () => {
    // From "auto", first to what differs from what is seen.
    const order = matchMedia("(prefers-color-scheme: dark)").matches ? ["auto", "light", "dark"] : themes;
    set(order[(order.indexOf(theme) + 1) % 3]);
  };
  button.addEventListener("click", next);
  document.addEventListener("keydown", (event) => {
    if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.matches("input, select, textarea")) next();
  });
  let kept = null;
  try { kept = localStorage.getItem(key); } catch { /* As above. */ }
  set(themes.includes(kept) ? kept : "auto");
})();
