/* Ask the daemon by its routes. What it refuses is an `ApiError` with its own words. */

import { shortened } from "./dom.js";
import { parse } from "./exact.js";

const ROOT = "api/v1/";
const WORDS_CHARS = 2000;

/** What the daemon, or a module, answered in place of what was asked for. */
export class ApiError extends Error {
  constructor(words, { status = 0, code = "", details = {} } = {}) {
    super(shortened(words, WORDS_CHARS));
    this.status = status;
    this.code = code;
    this.details = details;
  }

  /** Whether nobody is logged in, or no longer. */
  get isLogin() {
    return this.status === 401;
  }

  /** Whether nothing answered at all. */
  get isAway() {
    return this.status === 0;
  }
}

/** `path(["modules", name])`: segments, none of which can be more than one. */
export function path(segments, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const behind = given.length ? `?${new URLSearchParams(given)}` : "";
  return ROOT + segments.map(encodeURIComponent).join("/") + behind;
}

/** Ask; returns the Response of one that went well, for who reads it as it comes. */
export async function request(method, where, { body, headers = {}, signal } = {}) {
  const withBody = method === "POST" || method === "PATCH";
  let response;
  try {
    response = await fetch(where, {
      method,
      signal,
      headers: withBody ? { "Content-Type": "application/json", ...headers } : headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The daemon does not answer.");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

async function failure(response) {
  let said = {};
  try {
    said = await read(response);
  } catch {
    // Not the daemon's own words: the status is all there is.
  }
  // A route's own error is text; the answer to an invocation has an object.
  const error = typeof said?.error === "object" && said.error !== null ? said.error : said;
  const words = error?.message ?? error?.error ?? `The daemon answered ${response.status}.`;
  return new ApiError(String(words), {
    status: response.status,
    code: String(error?.code ?? ""),
    details: error?.details ?? {},
  });
}

/** Return the JSON document that a Response is. */
export async function read(response) {
  return parse(await response.text());
}

export async function get(segments, query, options) {
  return read(await request("GET", path(segments, query), options));
}

export async function send(method, segments, body = {}, options = {}) {
  return read(await request(method, path(segments), { ...options, body }));
}

/** Ask an op of the daemon itself, by its name; returns the result. */
export async function ask(op, args = {}, options = {}) {
  const answer = await send("POST", ["modules", "supervisor", "invoke"], { op, args }, options);
  return answer.result;
}

/** Yield each JSON document of a stream of lines (NDJSON); `""` between them is a sign of life. */
export async function* lines(method, segments, { query, body, signal } = {}) {
  const headers = { Accept: "application/x-ndjson" };
  const response = await request(method, path(segments, query), { body, headers, signal });
  for await (const line of texts(response)) if (line) yield parse(line);
}

/** Yield the lines of a body as they come. */
export async function* texts(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (left + value).split("\n");
      left = parts.pop();
      yield* parts;
    }
    if (left) yield left;
  } finally {
    reader.cancel().catch(() => {});
  }
}
