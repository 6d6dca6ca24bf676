// All deployments of all chains that the service reads.

import { h, told } from "../dom.js";
import { moment, whole } from "../format.js";
import { badge, digest, facts, section, table } from "../parts.js";
import { runLink, withQuery } from "../places.js";
import { read } from "../rest.js";
import { STAGES, wordFor } from "../words.js";

/** Return the page. */
export async function deployments(_, signal) {
  const [status, { chains }] = await Promise.all([read("/v1/status", signal), read("/v1/chains", signal)]);
  const lists = await Promise.all(chains.map((chain) => read(chain.links.deployments, signal)));
  const standing = new Map(status.deployments.map((one) => [one.links.self, one]));
  const found = lists.flatMap((list) => list.deployments);
  return {
    title: "Deployments",
    crumbs: [],
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Deployments"),
        h("p", { class: "quiet" }, "Each is one run of federated learning whose decisions a contract on the chain has checked.")),
      found.length ? listed(found, standing) : h("p", { class: "card" }, "No run has been deployed on this chain yet."),
      found.length > 1 ? h("p", {}, h("a", { class: "action", href: comparison(found) }, "Compare two runs")) : null,
      refused(status.refused),
      section("The chain", chainFacts(status)),
    ],
  };
}

function listed(found, standing) {
  const rows = found.map((one) => {
    const now = standing.get(one.links.self);
    return [
      h("a", { href: runLink(one.links.self) }, told(one.run)),
      now ? badge(`stage-${now.stage}`, wordFor(STAGES, now.stage)) : "–",
      `${whole(now?.round ?? 0)} of ${whole(one.rounds)}`,
      whole(one.sizes.clients),
      whole(one.sizes.trainers),
      whole(one.sizes.members),
      digest(one.address, "address"),
    ];
  });
  const columns = [["run", "text", "row"], ["stands", "text"], ["round", "number"], ["clients", "number"], ["trainers a round", "number"], ["members", "number"], ["contract"]];
  return h("div", { class: "card" }, table("Deployments", columns, rows));
}

function comparison(found) {
  return withQuery("#/compare", { left: found[0].links.self, right: found[1].links.self });
}

function refused(manifests) {
  if (!manifests.length) return null;
  return section("Not served",
    h("p", {}, "These manifests do not agree with the chain, so nothing is told of their runs."),
    h("ul", {}, ...manifests.map((one) => h("li", {}, told(one.manifest), ": ", told(one.reason)))));
}

function chainFacts({ chain, versions }) {
  return facts([
    ["name in addresses", h("code", {}, told(chain.name))],
    ["newest block", `${whole(chain.number)}, of ${moment(chain.at)}`],
    ["block 0", digest(chain.genesis, "hash of block 0")],
    ["protocol", `version ${versions.protocol}`],
    ["service", told(versions.package), `, compiler ${versions.compiler}`],
  ]);
}
