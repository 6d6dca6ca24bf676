// Routing: the address selects a page, and the service's responses fill it.

import { forgetCurves } from "./charts/curves.js";
import { fill, h, told, visible } from "./dom.js";
import { watch } from "./live.js";
import { failure, fillGlossary, say, showTerms } from "./parts.js";
import { placeOf, withQuery } from "./places.js";
import { Refused } from "./rest.js";
import { tokenForm } from "./token.js";
import { client, clients } from "./views/clients.js";
import { compare } from "./views/compare.js";
import { deployments } from "./views/deployments.js";
import { federation } from "./views/federation.js";
import { proof } from "./views/proof.js";
import { round } from "./views/round.js";
import { rounds } from "./views/rounds.js";
import { run } from "./views/run.js";
import { search } from "./views/search.js";
import { verification } from "./views/verification.js";
import { words } from "./views/glossary.js";

const VIEWS = { client, clients, compare, deployments, federation, proof, round, rounds, run, search, verification, words };
const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
const form = document.getElementById("search");
let turn = new AbortController();
let stopWatching = () => {};

fillGlossary(document.getElementById("glossary"));
showTerms(document.getElementById("tip"));
addEventListener("hashchange", () => go());
form.addEventListener("submit", (event) => {
  event.preventDefault();
  location.hash = withQuery("#/search", { q: form.elements.q.value.trim() });
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
go({ isFirst: true });

/** Show the page that the address names. */
async function go({ isFirst = false, isLive = false } = {}) {
  turn.abort();
  turn = new AbortController();
  const { signal } = turn;
  main.setAttribute("aria-busy", "true");
  const place = placeOf(location.hash);
  markPlace(place);
  const page = await pageOf(place, signal);
  if (signal.aborted) return;
  if (!(isLive && page.hasFailed)) present(page, isLive);
  main.removeAttribute("aria-busy");
  if (!isLive) {
    stopWatching();
    stopWatching = watch(page.watched ?? null, page.state ?? null, () => go({ isLive: true }));
    arrive(page.title, isFirst);
  } else {
    say("The page was updated.");
  }
}

/** Mark in the header which of its pages is shown, or holds the page that is. */
function markPlace(place) {
  for (const link of document.querySelectorAll("#places a")) {
    const isHere = place !== null && link.dataset.views.split(" ").includes(place.view);
    if (isHere) link.setAttribute("aria-current", link.getAttribute("href") === location.hash ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
}

async function pageOf(place, signal) {
  if (place === null) return failed("Page not found", "This address is not a page of the dashboard.");
  try {
    return await VIEWS[place.view](place, signal);
  } catch (error) {
    if (signal.aborted) return null;
    if (error instanceof Refused) {
      const asking = error.status === 401 ? tokenForm(() => go()) : null;
      return failed(error.title, error.message, asking);
    }
    console.error("This page cannot be shown:", error);
    return failed("This page cannot be shown", "The service returned a response in an unexpected format.");
  }
}

function failed(title, detail, ...more) {
  return { title, crumbs: [], nodes: [failure(title, detail), ...more], hasFailed: true };
}

/** Put a page in place; one that is brought up to date keeps what was open and where the focus was. */
function present(page, isLive) {
  const opened = isLive ? [...main.querySelectorAll("details[open]")].map((one) => one.id) : [];
  const focused = isLive && main.contains(document.activeElement) ? document.activeElement.id : "";
  const { scrollX, scrollY } = window;
  fill(main, ...page.nodes);
  fill(crumbs, ...trail(page));
  document.title = `${visible(page.title)} · CMFL ledger`;
  forgetCurves();
  opened.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  if (isLive) scrollTo(scrollX, scrollY);
}

function trail(page) {
  if (!page.crumbs.length && page.title === "Runs") return [];
  const ahead = [["Runs", "#/"], ...page.crumbs];
  return [
    ...ahead.map(([text, href]) => h("li", {}, h("a", { href }, told(text)))),
    h("li", { "aria-current": "page" }, told(page.short ?? page.title)),
  ];
}

function arrive(title, isFirst) {
  if (isFirst) return;
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
  say(visible(title));
}
