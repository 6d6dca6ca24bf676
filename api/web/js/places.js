// Every view has an address: the part after the # determines the whole page.

const CHAIN = "(?<chain>(?:0|[1-9][0-9]{0,77})-[0-9a-f]{8})";
const RUN = `/runs/${CHAIN}/(?<address>0x[0-9a-fA-F]{40})`;
const NUMBER = "0|[1-9][0-9]{0,9}";
const PLACES = [
  ["deployments", ""],
  ["words", "/words"],
  ["search", "/search"],
  ["compare", "/compare"],
  ["run", RUN],
  ["rounds", `${RUN}/rounds`],
  ["round", `${RUN}/rounds/(?<round>${NUMBER})`],
  ["proof", `${RUN}/rounds/(?<round>${NUMBER})/clients/(?<client>${NUMBER})`],
  ["clients", `${RUN}/clients`],
  ["client", `${RUN}/clients/(?<client>${NUMBER})`],
  ["federation", `${RUN}/federation`],
  ["verification", `${RUN}/verification`],
].map(([name, pattern]) => [name, new RegExp(`^${pattern}/?$`)]);

/** The path below which a reverse proxy serves the service; empty without one. */
export const ROOT = location.pathname.replace(/\/dashboard\/.*$/, "");

/** Return which view an address names, with its parts and its query; null if it names none. */
export function placeOf(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").replace(/^\/$/, "").split("?", 2);
  for (const [view, pattern] of PLACES) {
    const found = pattern.exec(path);
    if (found) return { view, ...found.groups, query: new URLSearchParams(query) };
  }
  return null;
}

/** Return the REST path of a place's deployment. */
export function deploymentPath(place) {
  return `${ROOT}/v1/chains/${place.chain}/deployments/${place.address}`;
}

/** Return the address of a view of a deployment. */
export function runLink(path, below = "", query = {}) {
  const [, chain, address] = /\/v1\/chains\/([^/]+)\/deployments\/([^/]+)$/.exec(path) ?? [];
  return withQuery(`#/runs/${chain}/${address}${below}`, query);
}

/** Return an address with a query; empty values are left out. */
export function withQuery(address, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return text ? `${address}?${text}` : address;
}
