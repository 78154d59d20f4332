// The search for a label to add: a list that opens while a person types.

import { call, counted, element } from "./client.js";

const box = document.querySelector("#search");
const list = document.querySelector("#hits");
const LISTED = 20;
let number = 0; // of the latest search: answers to earlier ones come too late
let current = -1; // the hit that the arrow keys have reached

export function closeHits() {
  number += 1;
  list.replaceChildren();
  list.hidden = true;
  box.ariaExpanded = "false";
  current = -1;
}

// Looks for labels, and calls `add` with the one that is chosen.
export async function search(language, add) {
  number += 1;
  const own = number;
  const query = box.value.trim();
  if (!query) {
    closeHits();
    return;
  }
  for (const hit of list.children) hit.classList.add("stale");
  const parameters = new URLSearchParams({ limit: LISTED, query });
  if (language) parameters.set("language", language);
  const answer = await call(`labels?${parameters}`);
  if (own !== number) return;
  list.replaceChildren(...answer.labels.map((label) => drawHit(label, add)));
  if (!answer.labels.length) list.append(element("li", { className: "soft" }, "No label fits."));
  list.hidden = false;
  box.ariaExpanded = "true";
  current = -1;
}

function drawHit(label, add) {
  const name = label.name === label.label ? label.label : `${label.name} (${label.label})`;
  const hit = element("li", { role: "option", ariaSelected: "false" });
  hit.append(`${name}, ${counted(label.train_count, "document")}`);
  if (label.broader.length) hit.append(element("div", { className: "broader" }, label.broader.join(" › ")));
  hit.onclick = () => {
    box.value = "";
    closeHits();
    add(label);
  };
  return hit;
}

export function moveHit(event) {
  if (event.isComposing) return; // its keys choose characters
  const hits = [...list.querySelectorAll("[role=option]:not(.stale)")];
  if (event.key === "Escape") closeHits();
  if (event.key === "Enter" && hits.length) hits[Math.max(0, current)].click();
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !hits.length) return;
  event.preventDefault();
  current = (current + step + hits.length) % hits.length;
  hits.forEach((hit, place) => (hit.ariaSelected = String(place === current)));
  hits[current].scrollIntoView({ block: "nearest" });
}
