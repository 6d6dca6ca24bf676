// Parts that several pages of a run share.

import { h, told } from "./dom.js";
import { fromOne, moment, ppm, whole } from "./format.js";
import { badge } from "./parts.js";
import { ROOT, runLink } from "./places.js";
import { has } from "./rest.js";
import { ELECTIONS, wordFor } from "./words.js";

/** Return a command that checks this service's data about a run against a head.
 *
 * A run's name may be unsafe in a shell; its address is safe.
 */
export function remoteCommand(words, deployment) {
  const isPlain = /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(deployment.run);
  const which = isPlain ? `--run ${deployment.run}` : `--address ${deployment.address}`;
  return `cmfl ${words} --api ${location.origin}${ROOT} ${which} --head ${deployment.state.head}`;
}

/** Return the way to a page of a run. */
export const crumbsOf = (deployment, ...below) => [[deployment.run, runLink(deployment.links.self)], ...below];

/** Return the links between a run's pages. */
export async function tabs(deployment, current) {
  const path = deployment.links.self;
  const pages = [
    ["run", "Overview", ""],
    ["rounds", "Rounds", "/rounds"],
    ["clients", "Clients", "/clients"],
  ];
  if (deployment.links.federation) pages.push(["federation", "Live", "/federation"]);
  if (await has("/verifications")) pages.push(["verification", "Verification", "/verification"]);
  return h("nav", { class: "tabs", "aria-label": "Pages of this run" }, h("ul", {}, ...pages.map(([name, text, below]) =>
    h("li", {}, h("a", { href: runLink(path, below), "aria-current": name === current ? "page" : null }, text)))));
}

/** Return how a round stands, as a badge. */
export const statusBadge = (status) => badge(`status-${status}`, status);

/** Return a link to a client. */
export const clientLink = (path, client, text = `client ${client}`) => h("a", { href: runLink(path, `/clients/${client}`) }, text);

/** Return a link to a round. */
export const roundLink = (path, round, text = `round ${round}`) => h("a", { href: runLink(path, `/rounds/${round}`) }, text);

/** Return when and where a round ended. */
export function endedText(ended) {
  return ended ? `block ${whole(ended.number)}, ${moment(ended.at)}` : "not yet";
}

/** Return in which views a round's votes were decided, from 1. */
export function viewsText(views) {
  if (!views) return "–";
  return views[0] === views[1] ? fromOne(views[0]) : views.map(fromOne).join(" / ");
}

/** Return whether a round shows trouble: no decision, or a vote that took more than one view. */
export const isNoteworthy = (round) => round.status === "abandoned" || Boolean(round.views?.some((view) => view > 0));

/** Return what a run's settings say, as names with values. */
export function settings({ sizes, contract, parameters }) {
  const rows = [
    ["clients", whole(sizes.clients)],
    ["each round", `${whole(sizes.trainers)} trainers, ${whole(sizes.members)} members`],
    ["accepted", contract.form.name === "below_two" ? "all at a distance below 2" : `${ppm(contract.aggregation_ppm)} of the ranked updates`],
    ["replies needed", whole(contract.replies)],
    ["blocks for commitments", whole(contract.commit_blocks)],
    ["blocks until abandonment", whole(contract.deadline_blocks)],
    ["next committee", wordFor(ELECTIONS, contract.form.name)],
    ["randomness from", contract.beacon === "none" ? "payloads only" : "payloads and block hashes"],
  ];
  if (!parameters) return rows;
  return [
    ...rows,
    ["strategy", told(parameters.strategy.name)],
    ["distance", told(parameters.distance)],
    ["quorum", told(parameters.quorum)],
    ["model", `${whole(parameters.dimension)} numbers`],
    ...(parameters.payload ? [["payloads", told(parameters.payload)]] : []),
    ["server rate", String(parameters.server_rate)],
    ["length of the first view", `${whole(parameters.view_seconds)} s`],
  ];
}

/** Return clients as links, one after the other. */
export function clientLinks(path, clients) {
  return clients.flatMap((client, place) => [place ? ", " : "", clientLink(path, client, String(client))]);
}

