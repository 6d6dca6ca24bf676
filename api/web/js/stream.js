// Server-sent events by fetch, which can send a token (EventSource cannot).

import { credentials } from "./token.js";

const AGAIN_MS = 1_000;
const LONGEST = 4_000_000;

/** Call `told` with the data of each event until it returns true, the service ends the stream, or `signal`. */
export async function follow(path, told, signal) {
  let last = null;
  while (!signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream", ...credentials(), ...(last === null ? {} : { "Last-Event-ID": last }) };
      const answer = await fetch(path, { headers, signal });
      if (answer.status === 204 || (answer.status >= 400 && answer.status < 500 && answer.status !== 429)) return;
      if (answer.ok) {
        for await (const event of events(answer.body)) {
          last = event.id ?? last;
          if (told(JSON.parse(event.data))) return;
        }
      }
    } catch {
      // Reconnect after the last event.
    }
    if (!signal.aborted) await new Promise((again) => setTimeout(again, AGAIN_MS));
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest = (rest + value).replaceAll("\r\n", "\n");
      if (rest.length > LONGEST) return;
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      yield* blocks.map(eventOf).filter((event) => event.data);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function eventOf(block) {
  const fields = block.split("\n").filter((line) => !line.startsWith(":")).map((line) => /^(\w+): ?(.*)$/.exec(line)).filter(Boolean);
  return Object.fromEntries(fields.map(([, name, value]) => [name, value]));
}
