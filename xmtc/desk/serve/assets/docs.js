// Shows the server's OpenAPI description as a page.

import { Problem, call, element } from "./client.js";

let schemas = {};

function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return typeOf(schemas[schema.$ref.split("/").pop()]);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.map(typeOf).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${typeOf(schema.items)}, …]`;
  if (schema.properties) {
    const required = schema.required || [];
    const fields = Object.entries(schema.properties).map(
      ([name, field]) => `${name}${required.includes(name) ? "" : "?"}: ${typeOf(field)}`,
    );
    return `{${fields.join(", ")}}`;
  }
  return schema.type || "anything";
}

function fields(schema) {
  const list = element("ul");
  const target = schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;
  for (const [name, field] of Object.entries(target.properties || {})) {
    const words = field.description ? `: ${field.description}` : "";
    const initial = field.default === undefined ? "" : `, default ${JSON.stringify(field.default)}`;
    list.append(element("li", {}, element("code", {}, `${name}: ${typeOf(field)}${initial}`), words));
  }
  return list;
}

function operation(path, verb, said) {
  const heading = element("h3", {}, element("span", { className: "verb" }, verb), element("code", {}, path));
  const card = element("section", { className: "card" }, heading, element("p", {}, said.description || said.summary));
  for (const one of said.parameters || []) {
    const words = one.description || one.schema.description || "";
    card.append(element("p", {}, element("code", {}, `${one.in} ${one.name}: ${typeOf(one.schema)}`), words && `: ${words}`));
  }
  for (const [type, content] of Object.entries(said.requestBody?.content || {})) {
    card.append(element("p", { className: "soft" }, `Body, ${type}`), fields(content.schema));
  }
  const answer = said.responses?.["200"]?.content?.["application/json"]?.schema;
  if (answer) card.append(element("p", { className: "soft" }, "Answer"), element("pre", {}, typeOf(answer)));
  return card;
}

async function start() {
  const said = await call("openapi.json");
  schemas = said.components?.schemas || {};
  document.querySelector("#title").textContent = `${said.info.title}, API`;
  const main = document.querySelector("#paths");
  for (const [path, verbs] of Object.entries(said.paths)) {
    for (const [verb, one] of Object.entries(verbs)) main.append(operation(path, verb, one));
  }
}

start().catch((problem) => {
  if (!(problem instanceof Problem)) throw problem;
  document.querySelector("#paths").textContent = problem.message;
});
