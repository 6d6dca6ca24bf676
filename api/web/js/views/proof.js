// Whether one client's update was used in a round, and the path from the update to the vote.

import { MATCHES, commitmentCheck, roundChecks, updateProof } from "../checks.js";
import { h } from "../dom.js";
import { blob, download } from "../downloads.js";
import { distance, percent, whole } from "../format.js";
import { command, digest, facts, section, table, term } from "../parts.js";
import { deploymentPath } from "../places.js";
import { asking, has, read } from "../rest.js";
import { clientLink, crumbsOf, remoteCommand, roundLink } from "../run.js";
import { checked } from "../verified.js";
import { OUTCOMES, REASONS, wordFor } from "../words.js";

const LINKS = ["updates_root", "result", "voted_result", "aggregation_vote", "head"];

/** Return the page. */
export async function proof(place, signal) {
  const path = deploymentPath(place);
  const [number, client] = [Number(place.round), Number(place.client)];
  const [deployment, one, before] = await Promise.all([
    read(path, signal),
    read(asking(`${path}/rounds/${number}`, { full: "true" }), signal),
    number > 1 ? read(`${path}/rounds/${number - 1}`, signal) : null,
  ]);
  await read(`${path}/clients/${client}`, signal);
  const update = one.parts.updates.find((entry) => entry.client === client);
  const member = one.parts.committee.find((entry) => entry.client === client);
  const made = update && update.rank !== null ? updateProof(one, client) : null;
  const linked = roundChecks(one, before ? before.head : deployment.config, deployment.contract).filter((check) => LINKS.includes(check.name));
  const own = update?.commitment ? [{ ...commitmentCheck(update), client }] : [];
  const title = `Client ${client} in round ${number}`;
  return {
    title: `${title} of ${deployment.run}`,
    short: title,
    crumbs: crumbsOf(deployment, [`Round ${number}`, `#/runs/${place.chain}/${place.address}/rounds/${number}`]),
    nodes: [
      h("header", { class: "head" }, h("h1", {}, title), h("p", { class: "pager" }, roundLink(path, number), clientLink(path, client))),
      answer(one, client, update, member),
      made ? way(made) : null,
      update?.rank === null || !update ? null : checked([...own, ...(made ? [made.root] : []), ...linked.filter((check) => check.name !== "updates_root")], "From the update to the head"),
      await outside(path, number, client, deployment),
    ],
  };
}

function answer(one, client, update, member) {
  if (member) return section("Answer", h("p", { class: "answer" }, `Client ${client} was a member of the committee in this round, place ${member.place}. Other updates are compared with members' updates, which are never used in the model.`), facts([
    ["scores", member.empty_seat ? "empty seat" : member.scores],
    [term("voted"), member.voted.length ? `on the ${member.voted.join(" and the ")}` : "no"],
    ["commitment", digest(member.commitment, "commitment")],
    [term("payload"), blob(member.payload, "payload")],
  ]));
  if (!update) return section("Answer", h("p", { class: "answer" }, `No: client ${client} was neither sampled nor on the committee in this round.`));
  const entry = one.parts.aggregation.accepted.find((accepted) => accepted.client === client);
  return section("Answer", h("p", { class: "answer" }, sentence(one, client, update, entry)), facts([
    ["outcome", wordFor(OUTCOMES, update.outcome)],
    update.rank !== null && ["rank", `${whole(update.rank + 1)} of ${whole(one.ranked)}`],
    update.rank !== null && [term("distance"), `${distance(update.distance)} (bits ${update.distance_bits})`],
    entry && [term("weight"), `${entry.weight.numerator} / ${entry.weight.denominator} = ${percent(entry.weight.value)}`],
    [term("committed"), update.committed ? "yes" : "not by the closing block"],
    ["commitment", digest(update.commitment, "commitment")],
    [term("payload"), blob(update.payload, "payload")],
  ]));
}

function sentence(one, client, update, entry) {
  if (entry) return `Yes: client ${client}'s update was used, with a weight of ${percent(entry.weight.value)}. It was ranked ${update.rank + 1} of ${one.ranked}.`;
  if (update.outcome === "not_accepted") return `No: client ${client}'s update was ranked ${update.rank + 1} of ${one.ranked}, beyond the cut-off.`;
  if (update.outcome === "dropped_out") return `No: client ${client} dropped out (${update.reason ? wordFor(REASONS, update.reason.name) : "the reason is not known"}).`;
  return one.status === "open" ? "Not yet: the round is open." : "No: the round was abandoned, so no update was used.";
}

function way({ leaf, steps, root }) {
  const rows = [
    ["the leaf", "–", digest(leaf, "leaf")],
    ...steps.map(({ sibling, node }, place) => [String(place + 1), digest(sibling, "sibling"), digest(node, "hash")]),
  ];
  return section("Merkle proof",
    h("p", { class: "quiet" }, "The leaf contains the client, payload, rank, distance and outcome. Hashing the leaf with each sibling in turn must give the root that the committee voted on."),
    table("Merkle proof", [["step", "text", "row"], ["sibling"], ["hash"]], rows),
    h("p", { class: `verdict ${root.outcome === MATCHES ? "good" : "bad"}` },
      root.outcome === MATCHES ? "✓ The last hash is the updates root." : "✗ The last hash is not the updates root."));
}

async function outside(path, number, client, deployment) {
  const isThere = await has("/rounds/{number}/proof/{client}");
  return section("Check it on your machine",
    isThere ? h("p", {}, download(`${path}/rounds/${number}/proof/${client}`, `proof-round-${number}-client-${client}.json`, "Download the proof", { class: "action" })) : null,
    h("p", {}, "This command checks the proof on your machine against the run's head. If you have a head from an earlier audit, use that head:"),
    command(remoteCommand(`verify client --round ${number} --client ${client}`, deployment)));
}
