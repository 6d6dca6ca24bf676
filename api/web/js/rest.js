// Requests to the service; its problem details (RFC 9457) become errors.

import { ROOT } from "./places.js";
import { credentials } from "./token.js";

const LONGEST_WAIT_MS = 30_000;
const MOST_PAGES = 200;

/** A failed request. */
export class Refused extends Error {
  constructor(status, title, detail) {
    super(detail);
    this.status = status;
    this.title = title;
  }
}

/** Return an answer's JSON. */
export const read = (path, signal) => asked("GET", path, undefined, signal);

/** Ask for something to be done; return the answer's JSON. */
export const send = (method, path, body, signal) => asked(method, path, body, signal);

async function asked(method, path, body, signal) {
  const limit = AbortSignal.timeout(LONGEST_WAIT_MS);
  const either = signal ? AbortSignal.any([signal, limit]) : limit;
  let answer;
  try {
    const content = body === undefined ? {} : { "Content-Type": "application/json" };
    const headers = { Accept: "application/json", ...content, ...credentials() };
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal: either });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, "No response from the service", `no response from ${path}`);
  }
  const told = await json(answer);
  if (!answer.ok) {
    throw new Refused(answer.status, told?.title ?? "Request refused", told?.detail ?? `status ${answer.status}`);
  }
  if (told === null) throw new Refused(answer.status, "Invalid response", `the response from ${path} is not JSON`);
  return told;
}

/** Return an answer's JSON; null where there is nothing at the path. */
export async function readIfThere(path, signal) {
  try {
    return await read(path, signal);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

/** Return a path with a query. */
export function asking(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}

/** Return the entries of a list's pages, up to a number, and whether there are more. */
export async function readList(path, name, query, most, signal) {
  const found = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await read(asking(path, { ...query, cursor }), signal);
    found.push(...answer[name]);
    cursor = answer.next_cursor;
    if (cursor === null || found.length >= most) break;
  }
  return { found: found.slice(0, most), more: cursor !== null || found.length > most };
}

/** Return which paths the service has beyond those that every page needs. */
export function features() {
  known ??= read(`${ROOT}/openapi.json`).then(
    (document) => new Set(Object.keys(document.paths)),
    () => {
      known = null; // a token may be needed
      return new Set();
    },
  );
  return known;
}

/** Say whether the service answers at a path below a deployment. */
export async function has(below) {
  return (await features()).has(`/v1/chains/{chain}/deployments/{address}${below}`);
}

let known = null;

async function json(answer) {
  try {
    return await answer.json();
  } catch {
    return null;
  }
}
