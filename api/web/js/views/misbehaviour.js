// Clients that were banned, refused or left out in some rounds, with the reasons, as `cmfl evidence` prints.

import { h, told } from "../dom.js";
import { counted } from "../format.js";
import { badge, digest, section, table, term } from "../parts.js";
import { runLink } from "../places.js";
import { Refused, readList } from "../rest.js";
import { clientLink, roundLink } from "../run.js";
import { BANS, EVIDENCE, INCIDENTS, REASONS, wordFor } from "../words.js";

const PAGE = 100;
const MOST = 300;
const TITLE = "Misbehaviour";
const NAMES = ["from", "to", "kind"];

/** Return the section about the rounds and the kind that a page's query names. */
export async function misbehaviour(path, query, signal) {
  const asked = Object.fromEntries(NAMES.map((name) => [name, query.get(name)]));
  const form = filters(path, asked, query.get("until"));
  try {
    const { found, more } = await readList(`${path}/evidence`, "evidence", { ...asked, limit: PAGE }, MOST, signal);
    return section(TITLE, explained(), form,
      found.length ? listed(path, found) : h("p", {}, "No client was banned, refused or left out in these rounds."),
      more ? h("p", {}, `Only the newest ${counted(found.length, "entry", "entries")} are shown. To see more, enter earlier rounds.`) : null);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return section(TITLE, form, h("p", { role: "alert" }, told(error.message)));
  }
}

function explained() {
  return h("p", { class: "quiet" }, "Two signed statements prove each ", term("banned", "ban"), ". The ", term("record"), " gives the reasons for refused scores and for clients left out. ",
    term("incidents", "Incidents"), " are reported by the decision's sender and not verified. A client left out is not proven guilty, because messages can be lost.");
}

function listed(path, found) {
  const rows = found.map((one) => [
    roundLink(path, one.round, String(one.round)),
    clientLink(path, one.client, String(one.client)),
    badge(one.kind === "dropout" ? "open" : "bad", wordFor(EVIDENCE, one.kind)),
    why(one),
    proof(path, one),
  ]);
  return table(TITLE, [["round", "number", "row"], ["client", "number"], ["kind"], ["why", "wide"], ["evidence", "wide"]], rows);
}

function why({ ban, scores, incident, dropout }) {
  if (ban) return wordFor(BANS, ban.signed_twice?.name ?? "unknown");
  if (incident) return `${wordFor(INCIDENTS, incident.kind.name)}, view ${incident.view + 1} of the ${incident.phase}`;
  if (dropout) return dropout.reason ? wordFor(REASONS, dropout.reason.name) : "the record is missing";
  return wordFor(REASONS, scores.reason.name) + (scores.named === null ? "" : ` (client ${scores.named})`);
}

/** Return a link to the evidence: both statements of a ban, else the digest in question. */
function proof(path, { client, round, ban, scores, incident, dropout }) {
  if (ban) return [h("a", { href: runLink(path, `/clients/${client}`) }, "both signed statements"), " ", digest(ban.transaction, "transaction")];
  if (scores) return ["score vector ", digest(scores.digest, "score vector")];
  if (incident) return roundLink(path, round, incident.votes.length ? counted(incident.votes.length, "signed vote") : "no signature");
  if (dropout.payload) return ["payload ", digest(dropout.payload, "payload")];
  return dropout.commitment ? ["commitment ", digest(dropout.commitment, "commitment")] : "none";
}

function filters(path, asked, until) {
  const number = (name, label) => h("label", {}, label, h("input", { name, id: `evidence-${name}`, inputmode: "numeric", size: 6, pattern: "[1-9][0-9]{0,9}", value: asked[name] }));
  const kinds = [["", "any"], ...Object.entries(EVIDENCE)];
  const form = h("form", { class: "filters", "aria-label": "Filter the evidence" },
    number("from", "from round"), number("to", "to round"),
    h("label", {}, "kind", h("select", { name: "kind", id: "evidence-kind" },
      ...kinds.map(([value, text]) => h("option", { value, selected: (asked.kind ?? "") === value }, text)))),
    h("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = runLink(path, "", { until, ...Object.fromEntries(new FormData(form)) });
  });
  return form;
}
