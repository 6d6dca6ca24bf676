// Watching a run for changes: by the service's events if it sends them, else by polling.

import { has, read } from "./rest.js";

const EVERY_MS = 3_000;
const EVENTS = ["round_opened", "round_ended", "taken_back"];

/** Call `changed` whenever a deployment's state changes; return a function that stops this.
 *
 * A finished run may still change (a ban can be reported late), so it is polled too, but seldom.
 */
export function watch(path, state, changed) {
  if (path === null) return () => {};
  const stop = new AbortController();
  let last = standing(state);
  const look = async () => {
    try {
      const told = standing((await read(path, stop.signal)).state);
      if (told !== last && !stop.signal.aborted) {
        last = told;
        changed();
      }
    } catch {
      // What is shown stays; the next look may succeed.
    }
  };
  begin(path, state, look, stop.signal);
  return () => stop.abort();
}

async function begin(path, state, look, signal) {
  const isSent = state?.stage !== "finished" && (await has("/events"));
  if (signal.aborted) return;
  if (isSent) {
    const source = new EventSource(`${path}/events`);
    for (const name of EVENTS) source.addEventListener(name, look);
    // If the service has no free stream, the page polls.
    source.addEventListener("error", () => source.readyState === EventSource.CLOSED && ask(state, look, signal));
    signal.addEventListener("abort", () => source.close());
    return;
  }
  ask(state, look, signal);
}

function ask(state, look, signal) {
  const every = state?.stage === "finished" ? 10 * EVERY_MS : EVERY_MS;
  const timer = setInterval(() => document.hidden || look(), every);
  signal.addEventListener("abort", () => clearInterval(timer));
}

const standing = (state) => JSON.stringify([state?.stage, state?.round, state?.head, state?.registered]);
