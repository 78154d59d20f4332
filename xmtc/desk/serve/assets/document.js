// The form of a document: its fields in the order of training, and its categories.

import { element } from "./client.js";

const text = document.querySelector("#text");
const fieldsBefore = document.querySelector("#fields");
const categories = document.querySelector("#categories");
let lastField = "text";
let fieldNames = ["text"];

// The text area is the last field. The fields before it have a line each, under their names in training.
export function drawDocument(about) {
  fieldNames = about.fields;
  lastField = fieldNames.at(-1);
  const isOneField = fieldNames.length === 1;
  document.querySelector("#text-label").textContent = isOneField && lastField === "text" ? "Text" : lastField;
  fieldsBefore.replaceChildren(...fieldNames.slice(0, -1).map(drawField));
  categories.replaceChildren(...about.categories.map((name) => drawCategory(name, about.category_values[name] ?? [])));
}

function drawField(name) {
  const input = element("input", { name, dir: "auto" });
  return element("label", { className: "field" }, name, input);
}

// A list of the values that the model knows; a line to write in if they are too many, or unknown.
function drawCategory(name, values) {
  if (!values.length) return drawField(name);
  const select = element("select", { name });
  select.append(element("option", { value: "" }, "not known"));
  for (const value of values) select.append(element("option", { value }, value));
  return element("label", { className: "field" }, name, select);
}

function inputs() {
  return [...document.querySelectorAll("#fields [name], #categories [name]")];
}

// What is in the form: the document as the server takes it, and its text as the server joins it.
export function readDocument() {
  const content = Object.fromEntries(inputs().map((input) => [input.name, input.value]));
  const isTextAlone = Object.values(content).every((value) => value === "");
  content[lastField] = text.value;
  const parts = fieldNames.map((name) => content[name]).filter((part) => part.trim());
  return { text: parts.join("\n") || text.value, document: isTextAlone ? text.value : content };
}

export function showDocument(content) {
  const fields = typeof content === "string" ? { [lastField]: content } : content;
  text.value = fields[lastField];
  for (const input of inputs()) showValue(input, fields[input.name] ?? "");
}

// A category may have several values, which are shown and sent as a list in JSON.
function showValue(input, value) {
  let shown = value;
  if (typeof value !== "string") shown = value.length > 1 ? JSON.stringify(value) : (value[0] ?? "");
  const isSelect = input.tagName === "SELECT";
  if (isSelect && ![...input.options].some((option) => option.value === shown)) {
    input.append(element("option", { value: shown }, shown));
  }
  input.value = shown;
}
