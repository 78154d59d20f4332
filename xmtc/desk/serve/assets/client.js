// Calls the server that this page came from.

const KEY = "xmtc-token";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

let asking = null;

// Asks for the token; all calls that need one wait for the same answer.
function askToken(refused) {
  const form = document.querySelector("#token-form");
  asking ??= new Promise((given) => {
    form.querySelector("label").textContent = refused ? "The server refuses this token." : "This server needs a token.";
    form.hidden = false;
    form.querySelector("input").focus();
    form.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, form.querySelector("input").value.trim());
      form.hidden = true;
      asking = null;
      given();
    };
  });
  return asking;
}

export async function call(path, body) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const model = new URLSearchParams(location.search).get("model");
  const place = model ? `${path}${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(model)}` : path;
  let response;
  try {
    response = await fetch(place, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, "The server does not answer.");
  }
  if (response.status === 401) {
    if (token === sessionStorage.getItem(KEY)) await askToken(token); // else another call has asked meanwhile
    return call(path, body);
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, answer.detail || response.statusText);
  return answer;
}

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
