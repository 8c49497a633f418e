// The way to the server: requests, and frames as they are pushed.

export class Problem extends Error {
  constructor(status, told) {
    super(told.message);
    this.status = status;
    this.told = told;
  }
}

async function asked(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Problem(0, { kind: "gone", message: "the server does not answer" });
  }
  const told = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, told.error ?? { kind: "", message: response.statusText });
  return told;
}

export function get(path, parameters = {}) {
  const given = new URLSearchParams(parameters).toString();
  return asked(given ? `${path}?${given}` : path);
}

export function post(path, body = {}) {
  return asked(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
}

export function ofQuery(name, what) { return `/api/queries/${encodeURIComponent(name)}/${what}`; }

// Exchange the token of the address for the cookie, and take it out of the address.
export async function login() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  history.replaceState(null, "", location.pathname);
  await post("/api/login", { token });
}

// Frames of a session; `view` names the query and the instant whose answer comes along.
export class Frames {
  constructor(handlers) {
    this.handlers = handlers;
    this.view = {};
  }

  look(view) {
    this.view = view;
    this.source?.close();
    const given = new URLSearchParams(view).toString();
    const source = new EventSource(given ? `/api/events?${given}` : "/api/events");
    this.source = source;
    for (const name of ["session", "answer", "skipped"]) {
      source.addEventListener(name, (event) => this.handlers[name]?.(JSON.parse(event.data)));
    }
    source.onopen = () => this.handlers.open?.();
    source.onerror = () => {
      this.handlers.gone?.();
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        setTimeout(() => { if (this.source === source) this.look(this.view); }, 2000);
      }
    };
  }
}
