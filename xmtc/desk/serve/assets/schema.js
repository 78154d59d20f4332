// JSON Schemas of the API: what a value looks like in words, and an example of it.

let schemas = {};

export function useSchemas(byName) {
  schemas = byName;
}

export function resolve(schema) {
  return schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;
}

// The type of a value, such as `{texts: [string, …], top_k?: integer | null}`.
export function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return typeOf(resolve(schema));
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return choices.map(typeOf).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${typeOf(schema.items)}, …]`;
  if (schema.properties) {
    const required = schema.required || [];
    const fields = Object.entries(schema.properties).map(([name, field]) => {
      const mark = required.includes(name) ? "" : "?";
      return `${name}${mark}: ${typeOf(field)}`;
    });
    return `{${fields.join(", ")}}`;
  }
  return schema.type || "anything";
}

// An example with the required fields; other fields have defaults.
export function exampleOf(schema) {
  const target = resolve(schema);
  const choices = target.anyOf ?? target.oneOf;
  if (target.default !== undefined) return target.default;
  if (choices) return exampleOf(choices[0]);
  if (target.enum) return target.enum[0];
  if (target.type === "array") return [exampleOf(target.items)];
  if (target.properties) {
    const names = target.required?.length ? target.required : Object.keys(target.properties);
    return Object.fromEntries(names.map((name) => [name, exampleOf(target.properties[name])]));
  }
  if (target.type === "integer" || target.type === "number") return target.minimum ?? 0;
  if (target.type === "boolean") return false;
  return target.type === "null" ? null : "A text.";
}
