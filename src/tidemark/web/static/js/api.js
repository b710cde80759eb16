// Talks to the server: JSON in, JSON out, errors as the server words them. No view calls fetch itself.
import { rememberPlace } from "./place.js";

/** What the server refused, in its own words; `status` is 0 where it could not be reached. */
export class ApiError extends Error {
  constructor(status, messages) {
    super(messages.join("\n"));
    this.status = status;
  }
}

const ROOT = "v1";

/** Path below a job, each part escaped: `jobPath(id, "vertices", vid)`. */
export const jobPath = (id, ...parts) => ["jobs", id, ...parts].map(encodeURIComponent).join("/");

export const get = (path, options) => request("GET", path, undefined, options);
export const post = (path, body) => request("POST", path, body ?? {});
export const patch = (path) => request("PATCH", path);

/** A file of the server as text: logs. */
export const text = (path) => request("GET", path, undefined, { as: "text" });

async function request(method, path, body, { as = "json", signal } = {}) {
  const headers = { Accept: as === "json" ? "application/json" : "text/plain" };
  // The server acts only on requests with this header, which no other site can send.
  if (method !== "GET") headers["X-Tidemark-CSRF"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`${ROOT}/${path}`, {
      method, headers, signal, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, ["The server does not answer. Has the job's process ended?"]);
  }
  if (answer.status === 401) {
    logIn();
    throw new ApiError(401, ["You need to log in."]);
  }
  if (!answer.ok) throw new ApiError(answer.status, await messages(answer));
  if (as === "text") return answer.text();
  const content = await answer.text();
  return content ? JSON.parse(content) : {};
}

async function messages(answer) {
  try {
    const { errors } = await answer.json();
    if (Array.isArray(errors) && errors.length) return errors.map(String);
  } catch {
    // Not ours: a proxy's page, or nothing at all. The status says what is known.
  }
  return [`${answer.status} ${answer.statusText}`.trim()];
}

/** Leads to the login page; after it the reader is back where they were. */
function logIn() {
  rememberPlace(location.hash);
  location.assign("login");
}

/** The address of the event stream, of all jobs or with one job's details. */
export const eventsAddress = (job) => `${ROOT}/events${job ? `?job=${encodeURIComponent(job)}` : ""}`;
