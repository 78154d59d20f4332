// Calls the server that this page came from, and makes elements.

const KEY = "xmtc-token";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

let asking = null;

// Asks for the token; all calls that need one wait for the same answer.
function askToken(isRefused) {
  const form = document.querySelector("#token-form");
  asking ??= new Promise((resolve) => {
    form.querySelector("label").textContent = isRefused
      ? "The server refuses this token."
      : "This server needs a token.";
    form.hidden = false;
    form.querySelector("input").focus();
    form.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, form.querySelector("input").value.trim());
      form.hidden = true;
      asking = null;
      resolve();
    };
  });
  return asking;
}

// Sends a request and returns the response, whatever its status; asks for a token if the server wants another one.
export async function send(path, options) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Problem(0, "The server does not answer.");
  }
  if (response.status !== 401) return response;
  const isSame = token === sessionStorage.getItem(KEY); // else another call has asked meanwhile
  if (isSame) await askToken(token);
  return send(path, options);
}

// Calls the API: by GET without a body, by POST with one. Returns the answer, or throws a Problem.
export async function call(path, body) {
  const model = new URLSearchParams(location.search).get("model");
  const separator = path.includes("?") ? "&" : "?";
  const place = model ? `${path}${separator}model=${encodeURIComponent(model)}` : path;
  const options =
    body === undefined
      ? { method: "GET" }
      : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await send(place, options);
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, answer.detail || response.statusText);
  return answer;
}

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// "1 label", "2 labels", "1,000 labels".
export function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
