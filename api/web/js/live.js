// Noticing that a run has gone on: by the service's events where it has them, else by asking.

import { has, read } from "./rest.js";

const EVERY_MS = 3_000;
const EVENTS = ["round_opened", "round_ended", "taken_back"];

/** Call `changed` whenever a deployment stands otherwise than it did; return how to stop.
 *
 * A finished run still may change (a ban can be reported late), so it is asked for too, but seldom.
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
    // Where there is no room for one more stream the page asks, as it does without events.
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
