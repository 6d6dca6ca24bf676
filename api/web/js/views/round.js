// One round: ranking and cut-off, scores, votes, and recomputed values.

import { roundChecks } from "../checks.js";
import { heat, scale } from "../charts/heat.js";
import { ranking } from "../charts/ranking.js";
import { electsByLot } from "../digests.js";
import { h, told } from "../dom.js";
import { blob, download } from "../downloads.js";
import { counted, distance, listed, moment, whole } from "../format.js";
import { command, digest, facts, figures, more, section, table, term } from "../parts.js";
import { deploymentPath } from "../places.js";
import { asking, read } from "../rest.js";
import { clientLink, clientLinks, crumbsOf, remoteCommand, roundLink, statusBadge } from "../run.js";
import { checked } from "../verified.js";
import { votes } from "../votes.js";
import { ELECTIONS, FORMS, OUTCOMES, REASONS, wordFor } from "../words.js";

const MOST_CELLS = 20_000;

/** Return the page. */
export async function round(place, signal) {
  const path = deploymentPath(place);
  const number = Number(place.round);
  const own = `${path}/rounds/${number}`;
  const [deployment, one, explained, scores, before] = await Promise.all([
    read(path, signal),
    read(asking(own, { full: "true" }), signal),
    read(`${own}/explanation`, signal),
    read(asking(`${own}/scores`, { include: "vectors" }), signal),
    number > 1 ? read(`${path}/rounds/${number - 1}`, signal) : null,
  ]);
  const start = before ? before.head : deployment.config;
  const checks = roundChecks(one, start, deployment.contract);
  return {
    title: `Round ${number} of ${deployment.run}`,
    short: `Round ${number}`,
    crumbs: crumbsOf(deployment),
    watched: one.status === "open" ? path : null,
    state: deployment.state,
    nodes: [
      heading(path, one, deployment),
      summary(one),
      checked(checks),
      rankingPart(path, one, deployment.contract),
      leftOut(path, one),
      scoresPart(path, one, scores),
      votes(path, one),
      section("Explanation", h("ol", { class: "sentences" }, ...explained.sentences.map((line) => h("li", {}, told(line.trim()))))),
      digests(path, one, start),
      takeAlong(own, number, one, deployment),
    ],
  };
}

function heading(path, one, deployment) {
  const number = one.round;
  return h("header", { class: "head" },
    h("h1", {}, `Round ${number} `, statusBadge(one.status)),
    h("p", { class: "quiet" }, one.ended ? `Ended in block ${whole(one.ended.number)}, ${moment(one.ended.at)}.` : "The round is still open."),
    h("p", { class: "pager" },
      number > 1 ? roundLink(path, number - 1, `← round ${number - 1}`) : null,
      number < deployment.state.round ? roundLink(path, number + 1, `round ${number + 1} →`) : null));
}

function summary(one) {
  return figures([
    [term("trainer", "trainers"), whole(one.trainers)],
    [term("member", "members"), whole(one.members)],
    [term("committed"), whole(one.committed), `of ${whole(one.trainers + one.parts.committee.filter((member) => !member.empty_seat).length)}`],
    [term("ranked"), whole(one.ranked)],
    [term("accepted"), whole(one.accepted)],
    one.banned.length > 0 && [term("banned"), whole(one.banned.length), `client ${listed(one.banned.map(String))}`],
  ]);
}

function rankingPart(path, one, contract) {
  if (one.status !== "decided") return null;
  const { aggregation } = one.parts;
  const form = wordFor(FORMS, aggregation.form.name);
  const limit = electsByLot(contract) ? "" : ` Cut-off: the ${contract.form.name === "last" ? "last" : "first"} ${one.accepted}.`;
  return section("Ranking",
    h("p", { class: "quiet" }, `Accepted updates: ${form}.${limit} Next committee: ${electedIn(one, contract)}.`),
    ranking(path, one));
}

/** Return the clients that a round elected; a draw by lot depends on the number accepted. */
function electedIn(one, contract) {
  const places = one.parts.next_committee.length;
  if (!electsByLot(contract)) return wordFor(ELECTIONS, contract.form.name);
  if (one.accepted > places) return `${places} of the ${one.accepted} accepted clients, drawn by lot`;
  const more = places - one.accepted;
  return more ? `the ${one.accepted} accepted clients and the next ${more} in the ranking` : `the ${one.accepted} accepted clients`;
}

function leftOut(path, one) {
  const out = one.parts.updates.filter((update) => update.rank === null);
  if (!out.length) return null;
  const rows = out.map((update) => [
    clientLink(path, update.client),
    wordFor(OUTCOMES, update.outcome),
    update.reason ? wordFor(REASONS, update.reason.name) : "–",
    digest(update.commitment, "commitment"),
  ]);
  return section(one.status === "decided" ? "Not ranked" : "Sampled", table("Trainers that are not ranked", [["client", "text", "row"], ["outcome"], ["why", "wide"], ["commitment"]], rows));
}

/** Return the heat map of the members' scores, in the order of the ranking. */
function scoresPart(path, one, { claims, left_out: leftOutClaims }) {
  if (!claims.length) return null;
  const places = new Map(one.parts.updates.map((update) => [update.client, update]));
  const scored = new Set(claims.flatMap((claim) => claim.vector?.trainers.map((entry) => entry.client) ?? []));
  const everybody = [...scored].sort((a, b) => (places.get(a)?.rank ?? Infinity) - (places.get(b)?.rank ?? Infinity) || a - b);
  const trainers = everybody.slice(0, Math.max(1, Math.floor(MOST_CELLS / claims.length)));
  const columns = trainers.map((client) => ({ label: String(client), mark: places.get(client)?.outcome === "accepted" ? "is-accepted" : null }));
  const rows = claims.map((claim) => {
    const values = new Map(claim.vector?.trainers.map((entry) => [entry.client, entry.distance]) ?? []);
    return { claim, label: `member ${claim.member}`, mark: claim.counted ? null : "is-refused", values: trainers.map((client) => values.get(client) ?? null) };
  });
  const cells = rows.map(({ claim, values }) => [
    clientLink(path, claim.member, `member ${claim.member}`),
    claim.counted ? "counted" : `refused: ${refusal(claim)}`,
    digest(claim.digest, "vector"),
    ...values.map(distance),
  ]);
  const heading = [["member", "text", "row"], ["scores", "wide"], ["vector"], ...trainers.map((client) => [String(client), "number"])];
  const refused = rows.filter(({ claim }) => !claim.counted);
  return section("Members' scores",
    h("p", { class: "quiet" }, "Each member reports the ", term("distance"), " of each update. A stronger colour means a larger distance. Columns follow the ranking.",
      everybody.length > trainers.length ? ` Only the first ${whole(trainers.length)} of ${whole(everybody.length)} updates are shown.` : null),
    trainers.length ? h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Members' scores, as a picture" },
      heat("Distance of each update as reported by each member; the table below shows the same data", columns, rows)) : null,
    trainers.length ? h("p", { class: "legend" }, "near ", scale(), " far (logarithmic scale)") : null,
    refused.length ? h("ul", { class: "remarks" }, ...refused.map(({ claim }) =>
      h("li", {}, "The scores of ", clientLink(path, claim.member, `member ${claim.member}`), ` were left out: ${refusal(claim)}.`))) : null,
    leftOutClaims ? h("p", {}, `${counted(leftOutClaims, "more claim")} not shown.`) : null,
    more("scores", "Show as a table", table("Members' scores, by update", heading, cells)));
}

/** Return the round as a file, for a check on the reader's machine. */
function takeAlong(own, number, one, deployment) {
  if (one.status !== "decided") return null;
  return section("Check it on your machine",
    h("p", {}, download(`${own}/bundle`, `round-${number}.bundle.tar`, "Download the round", { class: "action" })),
    h("p", {}, "The file contains everything needed to check this round. This command downloads the file and checks it on your machine against the run's head. If you have a head from an earlier audit, use that head:"),
    command(remoteCommand(`verify round ${number}`, deployment)));
}

function refusal(claim) {
  const why = wordFor(REASONS, claim.reason.name);
  return claim.named === null ? why : `${why} (client ${claim.named})`;
}

function digests(path, one, start) {
  const aggregation = one.parts.aggregation;
  const committee = one.parts.committee.map((member) => member.client);
  const next = one.parts.next_committee.map((member) => member.client);
  return section("Digests", facts([
    ["head before", digest(start, "head before")],
    [term("head"), digest(one.head, "head")],
    [term("seed"), digest(one.seed, "seed")],
    ["next seed", digest(one.next_seed, "next seed")],
    [term("base"), digest(one.base, "base")],
    ["result of the vote", digest(aggregation.result, "result")],
    ["new model", blob(one.model, "model")],
    ["updates root", digest(aggregation.updates_root, "updates root")],
    ["scores root", digest(aggregation.scores_root, "scores root")],
    ["ranking", digest(aggregation.ranking_digest, "ranking")],
    ["accepted set", digest(aggregation.set, "accepted set")],
    ["revealed payloads", digest(one.reveal, "reveal")],
    [term("record"), blob(one.record?.digest, "record"), one.record?.available === false ? " (its file is missing)" : ""],
    [term("incidents"), blob(one.incidents?.digest, "incidents"), one.incidents?.available === false ? " (its file is missing)" : ""],
    one.ended && ["transaction", digest(one.ended.transaction, "transaction")],
    one.ended && ["block", digest(one.ended.hash, "block")],
  ]), more("committees", "Committees", facts([
    ["committee, by places", h("span", {}, ...clientLinks(path, committee))],
    ["next committee", h("span", {}, ...clientLinks(path, next))],
  ])));
}
