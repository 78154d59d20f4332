// Calls the server that this page came from.

const KEY = "xmtc-token";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

export async function call(path, body) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const model = new URLSearchParams(location.search).get("model");
  if (model) path += `${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(model)}`;
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Problem(0, "The server does not answer.");
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

// Runs an action; where the token is missing, asks for it and runs the action again.
export async function withToken(action) {
  const form = document.querySelector("#token-form");
  try {
    await action();
    form.hidden = true;
  } catch (problem) {
    if (!(problem instanceof Problem) || problem.status !== 401) throw problem;
    form.hidden = false;
    form.onsubmit = (event) => {
      event.preventDefault();
      setToken(form.querySelector("input").value.trim());
      withToken(action);
    };
    form.querySelector("input").focus();
  }
}
