// Shows the server's OpenAPI description as a page on which every request can be tried.

import { Problem, call, element, send } from "./client.js";
import { exampleOf, resolve, typeOf, useSchemas } from "./schema.js";

const JSON_TYPE = "application/json";
const FORM_TYPE = "application/x-www-form-urlencoded";

// Words of a description; what stands between backticks is code.
function prose(words) {
  return words.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));
}

function drawOperation(path, verb, operation) {
  const heading = element("h2", {}, element("span", { className: "verb" }, verb), element("code", {}, path));
  const card = element("section", { className: "card" }, heading);
  card.append(element("p", {}, ...prose(operation.description || operation.summary)));
  for (const parameter of operation.parameters || []) card.append(drawParameter(parameter));
  for (const [type, content] of Object.entries(operation.requestBody?.content || {})) {
    card.append(element("p", { className: "soft" }, `Body, ${type}`), drawFields(content.schema));
  }
  const answer = operation.responses?.["200"]?.content?.[JSON_TYPE]?.schema;
  if (answer) card.append(element("p", { className: "soft" }, "Answer"), element("pre", {}, typeOf(answer)));
  card.append(drawTrial(path, verb, operation));
  return card;
}

function drawParameter(parameter) {
  const words = parameter.description || parameter.schema.description;
  const name = element("code", {}, `${parameter.in} ${parameter.name}: ${typeOf(parameter.schema)}`);
  return element("p", {}, name, ...(words ? prose(`: ${words}`) : []));
}

function drawFields(schema) {
  const list = element("ul");
  for (const [name, field] of Object.entries(resolve(schema).properties || {})) {
    const words = field.description ? prose(`: ${field.description}`) : [];
    const initial = field.default === undefined ? "" : `, default ${JSON.stringify(field.default)}`;
    list.append(element("li", {}, element("code", {}, `${name}: ${typeOf(field)}${initial}`), ...words));
  }
  return list;
}

// A form that sends the request: an input for each parameter, the body with an example, and the answer beneath.
function drawTrial(path, verb, operation) {
  const parameters = (operation.parameters || []).map((parameter) => ({ ...parameter, input: inputFor(parameter) }));
  const [type, content] = Object.entries(operation.requestBody?.content || {})[0] || [null, null];
  const body = type && element("textarea", { className: "code", rows: 6, value: exampleBody(type, content.schema) });
  const status = element("p", { className: "soft", role: "status" });
  const answer = element("pre", { className: "answer", hidden: true, tabIndex: 0 });
  const button = element("button", { className: "main" }, "Send");
  const form = element("form");
  for (const { name, input } of parameters) form.append(element("label", { className: "field" }, name, input));
  if (body) form.append(element("label", { className: "field" }, `Body, ${type}`, body));
  form.append(button);
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    await showAnswer(status, answer, () => sendTrial(path, verb, parameters, type, body)).finally(
      () => (button.disabled = false),
    );
  };
  return element("details", {}, element("summary", {}, "Try it"), form, status, answer);
}

function inputFor(parameter) {
  const initial = parameter.schema.default;
  return element("input", { name: parameter.name, required: Boolean(parameter.required), value: initial ?? "" });
}

function exampleBody(type, schema) {
  const example = exampleOf(schema);
  return type === JSON_TYPE ? JSON.stringify(example, null, 2) : new URLSearchParams(example).toString();
}

function sendTrial(path, verb, parameters, type, body) {
  let place = path.slice(1);
  const query = new URLSearchParams();
  for (const parameter of parameters) {
    const value = parameter.input.value;
    if (parameter.in === "path") place = place.replace(`{${parameter.name}}`, encodeURIComponent(value));
    if (parameter.in === "query" && value !== "") query.set(parameter.name, value);
  }
  const address = query.size ? `${place}?${query}` : place;
  const options = { method: verb.toUpperCase() };
  if (body) {
    options.headers = { "Content-Type": type === JSON_TYPE ? JSON_TYPE : FORM_TYPE };
    options.body = body.value;
  }
  return send(address, options);
}

async function showAnswer(status, answer, request) {
  const startedAt = performance.now();
  status.textContent = "Sent.";
  try {
    const response = await request();
    const text = await response.text();
    const milliseconds = Math.round(performance.now() - startedAt);
    status.textContent = `${response.status} ${response.statusText}, ${milliseconds} ms`;
    answer.textContent = readable(text);
    answer.hidden = !text;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    status.textContent = problem.message;
  }
}

// JSON with a line for each value; other text as it is.
function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function start() {
  const api = await call("openapi.json");
  useSchemas(api.components?.schemas || {});
  document.querySelector("#title").textContent = `${api.info.title}, API`;
  const paths = document.querySelector("#paths");
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const [verb, operation] of Object.entries(operations)) paths.append(drawOperation(path, verb, operation));
  }
}

start().catch((problem) => {
  if (!(problem instanceof Problem)) throw problem;
  document.querySelector("#paths").textContent = problem.message;
});
