// Updates that auditors repeated in some rounds, and auditors that disagree.

import { MARKS, legend, strip } from "../charts/strip.js";
import { h, told } from "../dom.js";
import { counted, short, whole } from "../format.js";
import { badge, digest, more, section, table } from "../parts.js";
import { runLink } from "../places.js";
import { Refused, asking, has, read } from "../rest.js";
import { clientLink, roundLink } from "../run.js";

const MOST_CLIENTS = 200;
const MOST_NAMED = 20; // auditors of one update: anyone can create any number of keys
const MOST_PAGES = 40;
const LONGEST_WAIT_MS = 6_000;
const TITLE = "Training repeated by auditors";
const NAMES = { same: "attested_same", other: "attested_other", disputed: "attested_disputed", none: "attested_none" };

/** Return the section about ended rounds, which are ascending numbers; null if there is nothing to show. */
export async function training(path, rounds, signal) {
  if (!rounds.length || !(await has("/training"))) return null;
  try {
    // A mailbox may be slow, and the rest of the page does not need it.
    const limit = AbortSignal.timeout(LONGEST_WAIT_MS);
    const updates = await readUpdates(path, rounds, signal ? AbortSignal.any([signal, limit]) : limit);
    return section(TITLE, ...(updates.some((one) => one.attestations.length) ? shown(path, rounds, updates) : nothing(rounds)));
  } catch (error) {
    if (signal?.aborted || !(error instanceof Refused || error.name === "TimeoutError" || error.name === "AbortError")) throw error;
    return section(TITLE, h("p", { class: "quiet" }, "The attestations cannot be read now (", told(error.message), ")."));
  }
}

async function readUpdates(path, rounds, signal) {
  const found = [];
  let from = rounds[0];
  for (let page = 0; page < MOST_PAGES && from !== null; page += 1) {
    const answer = await read(asking(`${path}/training`, { from, to: rounds.at(-1) }), signal);
    found.push(...answer.updates);
    from = answer.next_from;
  }
  return found;
}

const between = (rounds) => (rounds.length === 1 ? `round ${rounds[0]}` : `rounds ${rounds[0]} to ${rounds.at(-1)}`);

function nothing(rounds) {
  return [h("p", { class: "quiet" }, `No auditor has attested an update of ${between(rounds)}. To repeat updates and sign the result, run `,
    h("code", {}, "cmfl verify training --sign KEYSTORE"), ".")];
}

function shown(path, rounds, updates) {
  const attested = updates.filter((one) => one.attestations.length);
  const everybody = [...new Set(updates.map((one) => one.client))].sort((one, other) => one - other);
  const clients = everybody.slice(0, MOST_CLIENTS);
  const cells = new Map(updates.map((one) => [`${one.round}/${one.client}`, one]));
  const of = (client, round) => cells.get(`${round}/${client}`) ?? null;
  const rows = clients.map((client) => ({
    label: `client ${client}`,
    cells: rounds.map((round) => cellOf(path, of(client, round))),
  }));
  const words = clients.map((client) => [
    clientLink(path, client, String(client)),
    ...rounds.map((round) => wordsOf(of(client, round))),
  ]);
  const columns = [["client", "number", "row"], ...rounds.map((round) => [`${round}`, "text"])];
  return [
    h("p", { class: "quiet" }, `${whole(attested.length)} of ${counted(updates.length, "update")} of ${between(rounds)} attested. `,
      "An attestation is only the auditor's claim, and anyone can sign with a new key. To find out which auditor is right, repeat the update. ",
      everybody.length > clients.length ? `Only the first ${MOST_CLIENTS} of ${whole(everybody.length)} clients are shown.` : null),
    h("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Repeated updates, as a picture" },
      strip(`Updates that auditors have repeated in ${between(rounds)}; the table below shows the same data`, rounds, rows)),
    legend(new Set(updates.map((one) => NAMES[one.verdict]))),
    notable(path, updates),
    auditors(attested),
    more("training", "Show as a table", table("Repeated updates, by client and round", columns, words)),
  ];
}

function cellOf(path, update) {
  if (!update) return null;
  const by = update.attestations.map((one) => `${one.verdict} by ${one.auditor}, ${one.environment}`);
  const title = [`client ${update.client}, round ${update.round}: ${MARKS[NAMES[update.verdict]]}`, ...bounded(by)].join("\n");
  return { mark: NAMES[update.verdict], href: runLink(path, `/rounds/${update.round}`), title };
}

function wordsOf(update) {
  if (!update) return "";
  if (!update.attestations.length) return "not attested";
  const by = (verdict) => bounded(byAuditor(update, verdict).map((one) => short(one.auditor))).join(", ");
  return ["same", "other"].filter(by).map((verdict) => `${verdict}: ${by(verdict)}`).join("; ");
}

/** Return an update's attestations of a verdict, one of each auditor. */
function byAuditor(update, verdict) {
  const found = update.attestations.filter((one) => one.verdict === verdict);
  return [...new Map(found.map((one) => [one.auditor, one])).values()];
}

/** Return the first of many, and the number of the rest. */
function bounded(many, shownAs = (one) => one) {
  const rest = many.length - MOST_NAMED;
  return [...many.slice(0, MOST_NAMED).map(shownAs), ...(rest > 0 ? [`and ${whole(rest)} more`] : [])];
}

/** Return the updates that auditors disagree on, side by side, and those that all report as other. */
function notable(path, updates) {
  const found = ["disputed", "other"].flatMap((verdict) => updates.filter((one) => one.verdict === verdict));
  if (!found.length) return null;
  const side = (update, verdict) => h("ul", { class: "plain" }, ...bounded(byAuditor(update, verdict), (one) =>
    [digest(one.auditor, "address"), h("small", { class: "quiet" }, told(one.environment))]).map((one) => h("li", {}, one)));
  const rows = found.slice(0, MOST_CLIENTS).map((update) => [
    roundLink(path, update.round, String(update.round)),
    clientLink(path, update.client, String(update.client)),
    badge(update.verdict === "other" ? "bad" : "open", update.verdict),
    side(update, "same"),
    side(update, "other"),
  ]);
  return [
    h("h3", {}, "Updates with disagreement or other bits"),
    table("Updates that are other or disputed", [["round", "number", "row"], ["client", "number"], ["verdict"], ["same bits"], ["other bits"]], rows),
  ];
}

function auditors(attested) {
  const counts = new Map();
  for (const update of attested) {
    for (const verdict of ["same", "other"]) {
      for (const { auditor } of byAuditor(update, verdict)) {
        const own = counts.get(auditor) ?? { same: 0, other: 0 };
        own[verdict] += 1;
        counts.set(auditor, own);
      }
    }
  }
  const rows = [...counts].slice(0, MOST_CLIENTS).map(([auditor, own]) => [digest(auditor, "address"), whole(own.same), whole(own.other)]);
  return [h("h3", {}, "Auditors"), table("Auditors", [["auditor", "text", "row"], ["same bits", "number"], ["other bits", "number"]], rows)];
}
