"use strict";
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
