// The page that labels a document, shows why, and saves what a person thinks of it.

import { Problem, call, counted, element } from "./client.js";
import { drawDocument, readDocument, showDocument } from "./document.js";
import { addRow, allRows, drawRows, judge, showEvidence } from "./rows.js";
import { moveHit, search } from "./search.js";

const $ = (selector) => document.querySelector(selector);
const CONTROLS = "#predict, #next, #save, #accept-all, #language";
const WORD_CHARACTERS = 100;
const WORDS = 10;
const NONE = { id: null, text: "" };

let about = null; // what the server says about the model
let answered = null; // the document whose labels are shown: document, text, id, version, and when it was shown
let queued = NONE; // the document that the queue gave last

function say(words, isBad = false) {
  $("#message").textContent = words;
  $("#message").className = isBad ? "bad" : "";
}

async function attempt(action) {
  try {
    await action();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    say(problem.message, true);
  }
}

// One action at a time: what is saved must be the text and the labels of one answer.
async function alone(action) {
  const controls = document.querySelectorAll(CONTROLS);
  const focused = document.activeElement; // a disabled control loses the focus
  controls.forEach((control) => (control.disabled = true));
  await attempt(async () => {
    if (about === null) await start();
    await action();
  }).finally(() => controls.forEach((control) => (control.disabled = false)));
  if (document.activeElement === document.body) focused.focus({ preventScroll: true });
}

async function predict() {
  const content = readDocument();
  if (!content.text.trim()) throw new Problem(0, "There is no text yet: paste or write one.");
  const language = $("#language").value || null;
  const body = { texts: [content.document], evidence: about.evidence, hierarchy: about.hierarchy, language };
  const answer = await call("predict", body);
  say("");
  const id = content.text === queued.text ? queued.id : null;
  answered = { ...content, id, version: answer.version, shownAt: performance.now() };
  const rows = answer.predictions[0].map((prediction) => ({
    ...prediction,
    broader: answer.broader[prediction.label] ?? [],
    verdict: null,
  }));
  drawRows(rows, content.text, about.annotations);
  $("#found").hidden = false;
  $("#hint").textContent = about.evidence
    ? "Choose a label to see its words in the text. Numbers are shares of the label’s logit."
    : "";
  showEvidence(about.evidence ? rows[0] : null);
}

async function next() {
  const skip = queued.id === null ? "" : `?skip=${encodeURIComponent(queued.id)}`;
  const answer = await call(`queue/next${skip}`, {});
  const waiting = answer.waiting ? `, ${answer.waiting.toLocaleString("en")} not ranked yet` : "";
  $("#left").textContent = `${answer.left.toLocaleString("en")} left${waiting}`;
  if (answer.id === null) {
    say(answer.waiting ? "No document is ranked yet; try again soon." : "No document is left.");
    return;
  }
  showDocument(answer.text);
  showEvidence(null); // the words of the document before
  queued = { id: answer.id, text: readDocument().text }; // the labels may fail to come: the answer before stays
  await predict();
}

function suggestionOf({ label, score, predicted, evidence }) {
  const texts = evidence.filter((part) => part.kind === "word").map((part) => part.text);
  const words = texts.map((word) => Array.from(word).slice(0, WORD_CHARACTERS).join(""));
  return { label, score, predicted, words: [...new Set(words)].slice(0, WORDS) };
}

async function save() {
  const rows = allRows();
  const labels = rows.filter((row) => row.verdict === "yes").map((row) => row.label);
  const unjudged = rows.filter((row) => row.verdict === null).length;
  if (unjudged === rows.length) throw new Problem(0, "Nothing is judged yet: accept or reject a label.");
  const review = {
    suggested: rows.filter((row) => row.score !== null).map(suggestionOf),
    rejected: rows.filter((row) => row.verdict === "no").map((row) => row.label),
    seconds: (performance.now() - answered.shownAt) / 1000,
    version: answered.version,
  };
  const body = { text: answered.document, labels, review };
  if (answered.id !== null) body.id = answered.id;
  const answer = await call("annotations", body);
  if (answered.id === queued.id) queued = NONE;
  $("#found").hidden = true; // until the next answer, so that nothing is saved twice
  say("");
  if (about.queue) await attempt(next);
  const { textContent: more, className } = $("#message");
  const left = about.task === "single_label" || !unjudged ? "" : `${counted(unjudged, "label")} ${unjudged === 1 ? "was" : "were"} not judged. `;
  say(`Saved; ${counted(answer.saved, "annotation")} in all. ${left}${more}`.trim(), className === "bad");
}

function addLabel({ label, name, broader }) {
  let row = allRows().find((shown) => shown.label === label);
  if (!row) {
    row = { label, name, broader, score: null, predicted: false, evidence: [], verdict: null };
    addRow(row);
  }
  if (row.verdict !== "yes") judge(row, "yes");
}

async function start() {
  about = await call("model");
  document.title = `${about.model} · xmtc`;
  $("#name").textContent = about.model;
  $("#about").textContent = `${counted(about.labels, "label")}, xmtc ${about.xmtc}.`;
  drawDocument(about);
  $("#language").append(...about.languages.map((language) => element("option", {}, language)));
  $("#languages").hidden = !about.languages.length;
  $("#annotate").hidden = !about.annotations;
  $("#next").hidden = !about.queue;
}

$("#predict").onclick = () => alone(predict);
$("#next").onclick = () => alone(next);
$("#save").onclick = () => alone(save);
$("#accept-all").onclick = () => {
  const predicted = allRows().filter((row) => row.predicted && row.verdict === null);
  predicted.forEach((row) => judge(row, "yes"));
};
$("#reject-rest").onclick = () => {
  const unjudged = allRows().filter((row) => row.verdict === null);
  unjudged.forEach((row) => judge(row, "no"));
};
$("#language").onchange = () => {
  const isJudged = allRows().some((row) => row.verdict);
  if (allRows().length && !isJudged) alone(predict); // keeps verdicts
};
$("#search").oninput = () => attempt(() => search($("#language").value, addLabel));
$("#search").onkeydown = moveHit;
$("#text").onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("#predict").click();
};
alone(() => say(""));
