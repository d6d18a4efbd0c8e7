"use strict";
// Layers as tabs; without this script all of them are shown.
for (const panels of document.querySelectorAll(".panels")) {
  const parts = [...panels.children], tabs = document.createElement("div"), buttons = [];
  tabs.className = "tabs";
  tabs.setAttribute("role", "tablist");
  const choose = (chosen) => parts.forEach((part, at) => {
    part.hidden = at !== chosen;
    buttons[at].setAttribute("aria-selected", String(at === chosen));
    buttons[at].tabIndex = at === chosen ? 0 : -1;
  });
  parts.forEach((part, at) => {
    const button = buttons[at] = document.createElement("button");
    button.textContent = part.querySelector("h3").textContent;
    button.setAttribute("role", "tab");
    part.setAttribute("role", "tabpanel");
    button.addEventListener("click", () => choose(at));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { const next = (at + step + parts.length) % parts.length; choose(next); buttons[next].focus(); }
    });
    tabs.append(button);
  });
  panels.prepend(tabs);
  choose(0);
}
// The cell below the pointer, in words.
for (const svg of document.querySelectorAll("svg[data-origin]")) {
  const [left, top_, pitch, size] = svg.dataset.origin.split(" ").map(Number), names = JSON.parse(svg.dataset.names);
  const output = svg.closest("figure").querySelector("output");
  // Beyond some hundred cells only the bad ones have texts of their own; the table below has the others.
  const table = svg.closest(".panel")?.querySelector("table.grid");
  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const row = Math.floor((at.y - top_) / pitch), column = Math.floor((at.x - left) / pitch);
    const inside = Math.min(row, column) >= 0 && Math.max(row, column) < size;
    const words = event.target.querySelector("title")?.textContent;
    const value = table?.rows[row + 1]?.cells[column + 1]?.textContent.trim();
    output.textContent = inside ? words ?? `${names[row]} > ${names[column]}${value ? `: ${value}` : ""}` : "";
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("article details").forEach((one) => { one.open = true; }));
