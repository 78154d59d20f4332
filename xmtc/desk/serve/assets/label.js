// The page that labels a text, shows why, and saves what a person thinks of it.

import { Problem, call, element } from "./client.js";

const $ = (selector) => document.querySelector(selector);
const NONE = { id: null, text: "" };
const state = { about: null, document: "", text: "", id: null, rows: [], current: null, hit: -1, search: 0 };
state.queued = NONE; // the document that the queue gave last

function say(words, bad = false) {
  $("#message").textContent = words;
  $("#message").className = bad ? "bad" : "";
}

async function attempt(action) {
  try {
    await action();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    say(problem.message, true);
  }
}

// One at a time: what is saved must be the text and the labels of one answer.
async function alone(action) {
  const controls = document.querySelectorAll("#predict, #next, #save, #accept-all, #language");
  const focused = document.activeElement; // a disabled control loses the focus
  controls.forEach((one) => (one.disabled = true));
  const ready = async () => state.about ?? (await start());
  await attempt(() => ready().then(action)).finally(() => controls.forEach((one) => (one.disabled = false)));
  if (document.activeElement === document.body) focused.focus({ preventScroll: true });
}

function showText(row) {
  state.current = row;
  $("#reading").hidden = !row;
  if (!row) return;
  $("#reading-title").textContent = row.evidence.length
    ? `What supports “${row.name}”`
    : `No word stands out for “${row.name}”`;
  const marked = $("#marked");
  marked.replaceChildren();
  const words = row.evidence.filter((word) => word.end > word.start).sort((a, b) => a.start - b.start);
  const most = Math.max(0, ...words.map((word) => word.contribution));
  const characters = Array.from(state.text); // the server counts characters, a browser counts UTF-16 units
  const slice = (start, end) => characters.slice(start, end).join("");
  let at = 0;
  for (const word of words) {
    marked.append(slice(at, word.start));
    const mark = element("mark", { title: `adds ${word.contribution.toFixed(3)}` }, slice(word.start, word.end));
    if (word.contribution > most / 2) mark.className = "strong";
    marked.append(mark);
    at = word.end;
  }
  marked.append(slice(at));
  for (const item of document.querySelectorAll(".found")) item.classList.toggle("current", item.dataset.label === row.label);
}

function judge(row, verdict) {
  row.verdict = row.verdict === verdict ? null : verdict;
  const item = document.querySelector(`.found[data-label="${CSS.escape(row.label)}"]`);
  for (const button of item.querySelectorAll(".verdict button")) {
    button.ariaPressed = String(button.dataset.verdict === row.verdict);
  }
  item.classList.toggle("rejected", row.verdict === "no");
  count();
}

function count() {
  const accepted = state.rows.filter((row) => row.verdict === "yes").length;
  $("#chosen").textContent = accepted === 1 ? "1 label accepted" : `${accepted} labels accepted`;
}

function verdictButton(row, verdict, sign, words) {
  const button = element("button", { className: verdict, textContent: sign, title: words, ariaPressed: "false" });
  button.ariaLabel = `${words} ${row.name}`;
  button.dataset.verdict = verdict;
  button.onclick = () => judge(row, verdict);
  return button;
}

function drawRow(row) {
  const item = element("li", { className: "found" });
  item.dataset.label = row.label;
  const show = element("button", { className: "show", type: "button" }, row.name);
  show.onclick = () => showText(row);
  if (row.name !== row.label) show.append(" ", element("span", { className: "id" }, row.label));
  item.append(show);
  if (state.about.annotations) {
    const verdict = element("div", { className: "verdict" });
    verdict.append(verdictButton(row, "yes", "✓", "Accept"), verdictButton(row, "no", "✗", "Reject"));
    item.append(verdict);
  } else {
    item.append(element("span"));
  }
  if (row.score !== null) {
    const percent = `${(100 * row.score).toFixed(1)} %`;
    const meter = element("meter", { min: 0, max: 1, value: row.score, ariaLabel: `probability ${percent}` });
    item.append(element("div", { className: "score" }, meter, `${percent}${row.predicted ? ", predicted" : ""}`));
  }
  const words = element("div", { className: "words" });
  const sums = new Map(); // occurrences of a word are shown as one
  for (const { text, contribution } of row.evidence) sums.set(text, [...(sums.get(text) || []), contribution]);
  for (const [text, adds] of sums) {
    const times = adds.length > 1 ? ` ×${adds.length}` : "";
    const sum = adds.reduce((a, b) => a + b, 0).toFixed(2);
    words.append(element("span", { title: "share of the logit" }, `${text}${times} +${sum}`));
  }
  if (row.evidence.length) item.append(words);
  $("#labels").append(item);
}

// The text is the last field, and the inputs are the other fields and the categories; what is empty is unknown.
function read() {
  const values = [...document.querySelectorAll("#fields input")].map((input) => [input.name, input.value]);
  const last = [state.about.fields.at(-1), $("#text").value];
  const given = Object.fromEntries([...values, last]);
  const parts = state.about.fields.map((field) => given[field]).filter((part) => part.trim());
  const text = parts.join("\n") || last[1]; // as the server joins them
  return { text, document: values.some(([, value]) => value) ? given : last[1] };
}

function show(given) {
  const fields = typeof given === "string" ? { [state.about.fields.at(-1)]: given } : given;
  $("#text").value = fields[state.about.fields.at(-1)];
  for (const input of document.querySelectorAll("#fields input")) {
    const value = fields[input.name] ?? "";
    input.value = typeof value === "string" ? value : value.length > 1 ? JSON.stringify(value) : (value[0] ?? "");
  }
}

async function predict() {
  const given = read();
  const language = $("#language").value || null;
  const answer = await call("predict", { texts: [given.document], evidence: state.about.evidence, language });
  say("");
  Object.assign(state, given);
  state.id = given.text === state.queued.text ? state.queued.id : null;
  state.rows = answer.predictions[0].map((row) => ({ ...row, verdict: null }));
  state.version = answer.version;
  state.shown = performance.now();
  $("#labels").replaceChildren();
  state.rows.forEach(drawRow);
  $("#found").hidden = false;
  $("#hint").textContent = state.about.evidence
    ? "Choose a label to see its words in the text. Words show their share of the label’s logit."
    : "";
  showText(state.about.evidence ? state.rows[0] : null);
  count();
}

async function next() {
  const skip = state.queued.id === null ? "" : `?skip=${encodeURIComponent(state.queued.id)}`;
  const found = await call(`queue/next${skip}`, {});
  $("#left").textContent = `${found.left} left${found.waiting ? `, ${found.waiting} not ranked yet` : ""}`;
  if (found.id === null) {
    say(found.waiting ? "No document is ranked yet; try again soon." : "No document is left.");
    return;
  }
  show(found.text);
  state.queued = { id: found.id, text: read().text }; // the answer may fail to come: the one before stays
  await predict();
}

async function save() {
  const labels = state.rows.filter((row) => row.verdict === "yes").map((row) => row.label);
  const suggested = state.rows
    .filter((row) => row.score !== null)
    .map(({ label, score, predicted, evidence }) => {
      const words = [...new Set(evidence.map((word) => Array.from(word.text).slice(0, 100).join("")))].slice(0, 10);
      return { label, score, predicted, words };
    });
  const rejected = state.rows.filter((row) => row.verdict === "no").map((row) => row.label);
  const seconds = (performance.now() - state.shown) / 1000;
  const body = { text: state.document, labels, review: { suggested, rejected, seconds, version: state.version } };
  if (state.id !== null) body.id = state.id;
  const answer = await call("annotations", body);
  if (state.id === state.queued.id) state.queued = NONE;
  $("#found").hidden = true; // until the next answer, so that nothing is saved twice
  say("");
  if (state.about.queue) await attempt(next);
  const { textContent: more, className } = $("#message");
  say(`Saved; ${answer.saved} annotations in all. ${more}`.trim(), className === "bad");
}

function closeHits() {
  state.search += 1; // what is on its way comes too late
  $("#hits").replaceChildren();
  $("#hits").hidden = true;
  $("#search").ariaExpanded = "false";
  state.hit = -1;
}

function add(found) {
  $("#search").value = "";
  closeHits();
  let row = state.rows.find((one) => one.label === found.label);
  if (!row) {
    row = { label: found.label, name: found.name, score: null, predicted: false, evidence: [], verdict: null };
    state.rows.push(row);
    drawRow(row);
  }
  if (row.verdict !== "yes") judge(row, "yes");
}

async function search() {
  const number = ++state.search;
  const query = $("#search").value.trim();
  if (!query) return closeHits();
  const language = $("#language").value && `&language=${encodeURIComponent($("#language").value)}`;
  for (const hit of $("#hits").children) hit.classList.add("stale");
  const answer = await call(`labels?limit=20&query=${encodeURIComponent(query)}${language}`);
  if (number !== state.search) return; // a later search is on its way
  const hits = $("#hits");
  hits.replaceChildren();
  for (const found of answer.labels) {
    const words = found.name === found.label ? found.label : `${found.name} (${found.label})`;
    const hit = element("li", { role: "option", ariaSelected: "false" }, `${words}, ${found.train_count} documents`);
    hit.onclick = () => add(found);
    hits.append(hit);
  }
  if (!answer.labels.length) hits.append(element("li", { className: "soft" }, "No label fits."));
  hits.hidden = false;
  $("#search").ariaExpanded = "true";
  state.hit = -1;
}

function moveHit(event) {
  if (event.isComposing) return; // its keys choose characters
  const hits = [...document.querySelectorAll("#hits [role=option]:not(.stale)")];
  if (event.key === "Escape") closeHits();
  if (event.key === "Enter" && hits.length) hits[Math.max(0, state.hit)].click();
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !hits.length) return;
  event.preventDefault();
  state.hit = (state.hit + step + hits.length) % hits.length;
  hits.forEach((hit, at) => (hit.ariaSelected = String(at === state.hit)));
  hits[state.hit].scrollIntoView({ block: "nearest" });
}

async function start() {
  state.about = await call("model");
  document.title = `${state.about.model} · xmtc`;
  $("#name").textContent = state.about.model;
  $("#about").textContent = `${state.about.labels.toLocaleString("en")} labels, xmtc ${state.about.xmtc}.`;
  const names = [...state.about.fields.slice(0, -1), ...state.about.categories];
  $("#fields").replaceChildren(...names.map((name) => element("label", {}, `${name} `, element("input", { name, dir: "auto" }))));
  $("#language").append(...state.about.languages.map((language) => element("option", {}, language)));
  $("#languages").hidden = !state.about.languages.length;
  $("#annotate").hidden = !state.about.annotations;
  $("#next").hidden = !state.about.queue;
}

$("#predict").onclick = () => alone(predict);
$("#next").onclick = () => alone(next);
$("#save").onclick = () => alone(save);
$("#accept-all").onclick = () =>
  state.rows.filter((row) => row.predicted && row.verdict === null).forEach((row) => judge(row, "yes"));
$("#language").onchange = () => {
  if (state.rows.length && !state.rows.some((row) => row.verdict)) alone(predict); // keeps verdicts
};
$("#search").oninput = () => attempt(search);
$("#search").onkeydown = moveHit;
$("#text").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("#predict").click();
};
alone(() => say(""));
