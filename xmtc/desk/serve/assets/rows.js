// The labels of a document: their rows, the words that support them, and what a person thinks of them.

import { counted, element } from "./client.js";

const $ = (selector) => document.querySelector(selector);
let rows = [];
let text = "";
let canJudge = false;

// A row has label, name, score (null if a person added it), predicted, evidence, broader and verdict (yes, no, null).
export function allRows() {
  return rows;
}

export function drawRows(newRows, newText, judging) {
  rows = [];
  text = newText;
  canJudge = judging;
  $("#labels").replaceChildren();
  newRows.forEach(addRow);
  showCount();
}

export function addRow(row) {
  rows.push(row);
  const item = element("li", { className: "found" });
  item.dataset.label = row.label;
  item.append(nameOf(row), canJudge ? verdictsOf(row) : element("span"));
  if (row.broader.length) item.append(element("div", { className: "broader" }, row.broader.join(" › ")));
  if (row.score !== null) item.append(scoreOf(row));
  if (row.evidence.length) item.append(wordsOf(row));
  $("#labels").append(item);
}

function nameOf(row) {
  const button = element("button", { className: "show", type: "button" }, row.name);
  button.onclick = () => showEvidence(row);
  if (row.name !== row.label) button.append(" ", element("span", { className: "id" }, row.label));
  return button;
}

function verdictsOf(row) {
  return element(
    "div",
    { className: "verdict" },
    verdictButton(row, "yes", "✓", "Accept"),
    verdictButton(row, "no", "✗", "Reject"),
  );
}

function verdictButton(row, verdict, sign, words) {
  const button = element("button", { className: verdict, textContent: sign, title: words, ariaPressed: "false" });
  button.ariaLabel = `${words} ${row.name}`;
  button.dataset.verdict = verdict;
  button.onclick = () => judge(row, verdict);
  return button;
}

function scoreOf(row) {
  const percent = `${(100 * row.score).toFixed(1)} %`;
  const meter = element("meter", { min: 0, max: 1, value: row.score, ariaLabel: `probability ${percent}` });
  return element("div", { className: "score" }, meter, row.predicted ? `${percent}, predicted` : percent);
}

// What supports a label; the occurrences of a word are shown as one.
function wordsOf(row) {
  const contributions = new Map();
  for (const part of row.evidence) {
    const shown = part.kind === "name" ? `the name “${part.text}”` : part.text;
    const earlier = contributions.get(shown) || [];
    contributions.set(shown, [...earlier, part.contribution]);
  }
  const list = element("div", { className: "words" });
  for (const [shown, values] of contributions) {
    const times = values.length > 1 ? ` ×${values.length}` : "";
    const sum = values.reduce((total, value) => total + value, 0).toFixed(2);
    list.append(element("span", { title: "share of the logit" }, `${shown}${times} +${sum}`));
  }
  return list;
}

// Judges a label; the same verdict again takes it back.
export function judge(row, verdict) {
  row.verdict = row.verdict === verdict ? null : verdict;
  const item = $(`.found[data-label="${CSS.escape(row.label)}"]`);
  for (const button of item.querySelectorAll(".verdict button")) {
    button.ariaPressed = String(button.dataset.verdict === row.verdict);
  }
  item.classList.toggle("rejected", row.verdict === "no");
  showCount();
}

function showCount() {
  const number = (verdict) => rows.filter((row) => row.verdict === verdict).length;
  $("#chosen").textContent =
    `${counted(number("yes"), "label")} accepted, ${number("no")} rejected, ${number(null)} not judged`;
}

// Shows the text with the words that support a label; null hides it.
export function showEvidence(row) {
  $("#reading").hidden = !row;
  if (!row) return;
  $("#reading-title").textContent = readingTitle(row);
  $("#marked").replaceChildren(...markedText(row.evidence));
  for (const item of document.querySelectorAll(".found")) {
    item.classList.toggle("current", item.dataset.label === row.label);
  }
}

function readingTitle(row) {
  if (row.evidence.some((part) => part.kind === "word")) return `Words that support “${row.name}”`;
  const others = row.evidence.map((part) => (part.kind === "name" ? "its name" : part.text));
  if (!others.length) return `No word supports “${row.name}”`;
  return `No word supports “${row.name}”, but ${others.join(" and ")}`;
}

function markedText(evidence) {
  const words = evidence.filter((word) => word.end > word.start).sort((one, other) => one.start - other.start);
  const most = Math.max(0, ...words.map((word) => word.contribution));
  const characters = Array.from(text); // the server counts characters, a browser counts UTF-16 units
  const slice = (start, end) => characters.slice(start, end).join("");
  const parts = [];
  let position = 0;
  for (const word of words) {
    const mark = element("mark", { title: `adds ${word.contribution.toFixed(3)}` }, slice(word.start, word.end));
    if (word.contribution > most / 2) mark.className = "strong";
    parts.push(slice(position, word.start), mark);
    position = word.end;
  }
  parts.push(slice(position));
  return parts;
}
