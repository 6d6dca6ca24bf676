// The clients of a run: their counts, and one client's rounds.

import { MARKS, legend, strip } from "../charts/strip.js";
import { commitmentCheck } from "../checks.js";
import { h, told } from "../dom.js";
import { download } from "../downloads.js";
import { counted, distance, whole } from "../format.js";
import { badge, digest, facts, figures, section, table, term } from "../parts.js";
import { deploymentPath, runLink } from "../places.js";
import { asking, read } from "../rest.js";
import { clientLink, crumbsOf, endedText, roundLink, statusBadge, tabs } from "../run.js";
import { checked } from "../verified.js";
import { BANS, INCIDENTS, OUTCOMES, REASONS, wordFor } from "../words.js";

const LIMIT = 50;
const COUNTS = ["sampled", "ranked", "accepted", "dropped_out", "served", "scored", "refused", "voted", "primary", "incidents"];
const HEADINGS = {
  sampled: "sampled", ranked: "ranked", accepted: "accepted", dropped_out: "dropped out", served: "served",
  scored: "scores counted", refused: "scores refused", voted: "votes signed", primary: "as primary", incidents: "incidents",
};

/** Return the page of all clients. */
export async function clients(place, signal) {
  const path = deploymentPath(place);
  const cursor = place.query.get("cursor");
  const [deployment, list] = await Promise.all([
    read(path, signal),
    read(asking(`${path}/clients`, { limit: LIMIT, cursor }), signal),
  ]);
  const rows = list.clients.map((one) => [
    clientLink(path, one.client, String(one.client)),
    digest(one.address, "address"),
    whole(one.samples),
    ...COUNTS.map((count) => whole(one[count])),
    one.banned_in_round === null ? "" : badge("bad", `in round ${one.banned_in_round}`),
  ]);
  const columns = [["client", "number", "row"], ["address"], [term("samples"), "number"], ...COUNTS.map((count) => [HEADINGS[count], "number"]), [term("banned")]];
  return {
    title: `Clients of ${deployment.run}`,
    short: "Clients",
    crumbs: crumbsOf(deployment),
    watched: path,
    state: deployment.state,
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Clients of ", told(deployment.run)), await tabs(deployment, "clients")),
      section("Activity of each client", counting(list), table("Activity of each client", columns, rows),
        h("p", { class: "pager" },
          cursor ? h("a", { href: runLink(path, "/clients") }, "first page") : null,
          list.next_cursor ? h("a", { href: runLink(path, "/clients", { cursor: list.next_cursor }) }, "next page →") : null)),
    ],
  };
}

/** Return the page of one client. */
export async function client(place, signal) {
  const path = deploymentPath(place);
  const own = `${path}/clients/${Number(place.client)}`;
  const cursor = place.query.get("cursor");
  const [deployment, answer, list] = await Promise.all([
    read(path, signal),
    read(own, signal),
    read(asking(`${own}/rounds`, { limit: LIMIT, cursor }), signal),
  ]);
  const one = answer.client;
  const checks = list.rounds
    .filter((part) => part.committed && part.commitment && part.payload)
    .map((part) => ({ ...commitmentCheck({ client: one.client, ...part }), client: `${one.client}, round ${part.round}` }));
  return {
    title: `Client ${one.client} of ${deployment.run}`,
    short: `Client ${one.client}`,
    crumbs: crumbsOf(deployment, ["Clients", runLink(path, "/clients")]),
    watched: cursor ? null : path,
    state: deployment.state,
    nodes: [
      heading(path, one, answer.ban, deployment),
      figures(COUNTS.map((count) => [HEADINGS[count], whole(one[count])])),
      h("p", { class: "quiet" }, counting(answer)),
      statements(answer.ban),
      picture(path, one.client, list.rounds),
      section("Round by round", list.rounds.length ? roundsOf(path, one.client, list.rounds) : h("p", {}, "The client took part in no round on this page."),
        h("p", { class: "pager" },
          cursor ? h("a", { href: runLink(path, `/clients/${one.client}`) }, "newest rounds") : null,
          list.next_cursor ? h("a", { href: runLink(path, `/clients/${one.client}`, { cursor: list.next_cursor }) }, "earlier rounds →") : null)),
      checked(checks, "Commitments recomputed"),
    ],
  };
}

function heading(path, one, ban, deployment) {
  return h("header", { class: "head" },
    h("h1", {}, `Client ${one.client} `, one.banned_in_round === null ? null : badge("bad", `banned in round ${one.banned_in_round}`)),
    facts([
      ["address", digest(one.address, "address")],
      [term("samples"), whole(one.samples)],
      ban && [term("banned"), `${wordFor(BANS, ban.signed_twice?.name ?? "unknown")}, proven by the two statements below; banned in block ${whole(ban.block)} `, digest(ban.transaction, "transaction")],
    ]),
    h("p", { class: "pager" },
      one.client > 0 ? clientLink(path, one.client - 1, `← client ${one.client - 1}`) : null,
      one.client + 1 < deployment.sizes.clients ? clientLink(path, one.client + 1, `client ${one.client + 1} →`) : null));
}

/** Return both statements of a ban: the client signed each, and they contradict each other. */
function statements(ban) {
  if (!ban) return null;
  const rows = (ban.statements ?? []).map((one) => [
    one.kind, digest(one.base, "base"), digest(one.set, "set"), digest(one.result ?? one.digest, "content"), digest(one.signature, "signature"),
  ]);
  const columns = [["signed", "text", "row"], ["base"], ["set of clients"], ["result or score vector"], ["signature"]];
  return section("Both signed statements",
    h("p", { class: "quiet" }, rows.length
      ? "The client may sign only one of these, and signed both. The contract verified both signatures and banned the client."
      : "The statements are not in the contract's call data, because an account with code sent them. The contract verified them."),
    rows.length ? table("Both signed statements", columns, rows) : null);
}

function counting({ ended_rounds: ended, records_missing: missing }) {
  const lacking = missing ? ` The records of ${counted(missing, "round")} are missing. Scores of these rounds are neither counted nor refused here.` : "";
  return h("span", {}, `Totals of ${counted(ended, "ended round")}, including abandoned rounds. Each round has two votes.${lacking}`);
}

function picture(path, number, rounds) {
  if (!rounds.length) return null;
  const parts = [...rounds].reverse();
  const cells = parts.map((part) => {
    const mark = markOf(part);
    return { mark, banned: part.banned, href: runLink(path, `/rounds/${part.round}`), title: `round ${part.round}: ${MARKS[mark]}` };
  });
  const label = `Activity of client ${number} in rounds ${parts[0].round} to ${parts.at(-1).round}; the table below shows the same data`;
  return section("At a glance",
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Activity of the client, as a picture" },
      strip(label, parts.map((part) => part.round), [{ label: `client ${number}`, cells }])),
    legend(new Set(cells.flatMap((cell) => (cell.banned ? [cell.mark, "banned"] : [cell.mark])))));
}

function markOf(part) {
  if (part.role === "trainer") return part.outcome;
  return part.empty_seat ? "empty_seat" : part.scores;
}

function roundsOf(path, number, rounds) {
  const rows = rounds.map((part) => [
    roundLink(path, part.round, whole(part.round)),
    statusBadge(part.status),
    part.role === "trainer" ? "trained" : part.empty_seat ? "empty seat" : `served, place ${part.place}`,
    what(part),
    part.rank === null ? "–" : whole(part.rank),
    distance(part.distance),
    endedText(part.ended),
    h("span", {}, h("a", { href: runLink(path, `/rounds/${part.round}/clients/${number}`), "aria-label": `Proof for round ${part.round}` }, "proof"), " ",
      part.ended ? download(`${path}/rounds/${part.round}/proof/${number}`, `proof-round-${part.round}-client-${number}.json`, "file", { "aria-label": `Proof for round ${part.round} as a file` }) : null),
  ]);
  return table("Round by round", [["round", "number", "row"], ["state"], ["role"], ["activity", "wide"], ["rank", "number"], ["distance", "number"], ["ended"], ["why and proof"]], rows);
}

function what(part) {
  const reason = part.reason ? `: ${wordFor(REASONS, part.reason.name)}` : "";
  const done = part.role === "trainer" ? [wordFor(OUTCOMES, part.outcome) + reason] : duties(part);
  if (part.banned) done.push("banned");
  return done.join("; ") || "nothing";
}

function duties(part) {
  const scores = { counted: "scores counted", none: "no scores", unknown: "scores unknown", refused: "scores refused" }[part.scores];
  return [
    scores && scores + (part.refused.length ? `: ${part.refused.map((one) => wordFor(REASONS, one.reason.name)).join(", ")}` : ""),
    part.primary_of.length ? `primary of the ${part.primary_of.join(" and the ")}` : null,
    part.voted.length ? `voted on the ${part.voted.join(" and the ")}` : null,
    ...part.incidents.map((one) => `reported: ${wordFor(INCIDENTS, one.kind.name)} (view ${one.view + 1} of the ${one.phase})`),
  ].filter(Boolean);
}
