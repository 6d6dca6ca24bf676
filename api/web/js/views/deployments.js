// All runs on all chains that the service reads. REST calls each run a deployment.

import { h, told } from "../dom.js";
import { moment, percent, whole } from "../format.js";
import { badge, digest, facts, section, table, term } from "../parts.js";
import { ROOT, runLink, withQuery } from "../places.js";
import { has, read, readIfThere } from "../rest.js";
import { STAGES, wordFor } from "../words.js";

const MOST_CLAIMS = 50;

/** Return the page. */
export async function deployments(_, signal) {
  const [status, { chains }] = await Promise.all([read(`${ROOT}/v1/status`, signal), read(`${ROOT}/v1/chains`, signal)]);
  const lists = await Promise.all(chains.map((chain) => read(chain.links.deployments, signal)));
  const standing = new Map(status.deployments.map((one) => [one.links.self, one]));
  const found = lists.flatMap((list) => list.deployments);
  const claims = await claimsOf(found, signal);
  return {
    title: "Runs",
    crumbs: [],
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Runs"),
        h("p", { class: "quiet" }, "For each run, a contract on the chain checked every decision.")),
      found.length ? listed(found, standing, claims) : h("p", { class: "card" }, "No run has been deployed on this chain yet."),
      found.length > 1 ? h("p", {}, h("a", { class: "action", href: comparison(found) }, "Compare two runs")) : null,
      refused(status.refused),
      section("The chain", chainFacts(status)),
    ],
  };
}

/** Return the results that the files of the first runs claim, by REST path. */
async function claimsOf(found, signal) {
  if (!(await has("/series"))) return new Map();
  const shown = found.slice(0, MOST_CLAIMS);
  const series = await Promise.all(shown.map((one) => readIfThere(`${one.links.self}/series`, signal).catch(() => null)));
  return new Map(shown.map((one, place) => [one.links.self, claimed(series[place])]));
}

/** Return the last measured accuracy, and the attackers' share of the accepted updates; null where it is unknown. */
function claimed(series) {
  if (!series?.claimed) return { accuracy: null, attackers: null };
  const { accuracy, malicious_accepted: malicious } = series.claimed;
  const isWhole = series.round.length === (series.round.at(-1) ?? 0);
  const counts = series.accepted.map((accepted, place) => [accepted ?? 0, malicious[place]]).filter(([, count]) => count !== null);
  const [all, bad] = [0, 1].map((part) => counts.reduce((sum, pair) => sum + pair[part], 0));
  return { accuracy: accuracy.findLast((value) => value !== null) ?? null, attackers: isWhole && all ? bad / all : null };
}

function listed(found, standing, claims) {
  const share = (value) => (value === null || value === undefined ? "–" : percent(value));
  const rows = found.map((one) => {
    const now = standing.get(one.links.self);
    return [
      h("a", { href: runLink(one.links.self) }, told(one.run)),
      now ? badge(`stage-${now.stage}`, wordFor(STAGES, now.stage)) : "–",
      `${whole(now?.round ?? 0)} of ${whole(one.rounds)}`,
      share(claims.get(one.links.self)?.accuracy),
      share(claims.get(one.links.self)?.attackers),
      whole(one.sizes.clients),
      whole(one.sizes.trainers),
      whole(one.sizes.members),
      digest(one.address, "address"),
    ];
  });
  const columns = [["run", "text", "row"], ["state", "text"], ["round", "number"],
    [["accuracy, ", term("claimed")], "number"], [["accepted attackers, ", term("claimed")], "number"], ["clients", "number"], ["trainers per round", "number"], ["members", "number"], ["contract"]];
  return h("div", { class: "card" }, table("Runs", columns, rows));
}

function comparison(found) {
  return withQuery("#/compare", { left: found[0].links.self, right: found[1].links.self });
}

function refused(manifests) {
  if (!manifests.length) return null;
  return section("Not served",
    h("p", {}, "These manifests do not match the chain, so their runs are not shown."),
    h("ul", {}, ...manifests.map((one) => h("li", {}, told(one.manifest), ": ", told(one.reason)))));
}

function chainFacts({ chain, versions }) {
  return facts([
    ["chain name in URLs", h("code", {}, told(chain.name))],
    ["newest block", `${whole(chain.number)}, ${moment(chain.at)}`],
    ["block 0", digest(chain.genesis, "hash of block 0")],
    ["protocol", `version ${versions.protocol}`],
    ["service", told(versions.package), `, compiler ${versions.compiler}`],
  ]);
}
