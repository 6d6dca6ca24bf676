// Finding a round, a client, an address or a digest.

import { h, told } from "../dom.js";
import { section } from "../parts.js";
import { ROOT, runLink } from "../places.js";
import { read, readIfThere, readList } from "../rest.js";

const MOST_CLIENTS = 12_288;
const MOST_ROUNDS = 300;
const NAMED = /^(?:(round|client)\s*#?\s*)?(0|[1-9][0-9]{0,9})$/i;
const ADDRESS = /^0x[0-9a-f]{40}$/i;
const DIGEST = /^(?:0x)?[0-9a-f]{64}$/i;

/** Return the page. */
export async function search({ query }, signal) {
  const asked = (query.get("q") ?? "").trim().slice(0, 200);
  document.getElementById("query").value = asked;
  const { deployments } = await read(`${ROOT}/v1/status`, signal);
  const { hits, looked } = await found(asked, deployments, signal);
  return {
    title: "Search",
    crumbs: [],
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Search"), h("p", { class: "quiet" }, ...(asked ? ["Results for ", told(asked), ". ", looked] : ["Enter a search term."]))),
      section("Found", hits.length
        ? h("ul", { class: "hits" }, ...hits.map(([href, text, of]) => h("li", {}, h("a", { href }, text), " ", h("span", { class: "quiet" }, "in ", told(of)))))
        : h("p", {}, "No results. Search for a round or client (12, round 12, client 7), an address, a digest or transaction (64 hex digits), or a run's name.")),
    ],
  };
}

async function found(asked, deployments, signal) {
  const named = NAMED.exec(asked);
  if (named) return { hits: await numbered(named, deployments, signal), looked: "" };
  if (ADDRESS.test(asked)) return addressed(asked.toLowerCase(), deployments, signal);
  if (DIGEST.test(asked)) return digested(`0x${asked.toLowerCase().replace(/^0x/, "")}`, deployments, signal);
  const hits = asked ? deployments.filter((one) => one.run.toLowerCase().includes(asked.toLowerCase())) : [];
  return { hits: hits.map((one) => [runLink(one.links.self), "run", one.run]), looked: "Searched run names." };
}

async function numbered([, kind, digits], deployments, signal) {
  const number = Number(digits);
  const hits = [];
  for (const one of deployments) {
    const path = one.links.self;
    if (kind?.toLowerCase() !== "client" && number >= 1 && number <= one.round) hits.push([runLink(path, `/rounds/${number}`), `round ${number}`, one.run]);
    if (kind?.toLowerCase() !== "round" && number < 2 ** 32 && (await readIfThere(`${path}/clients/${number}`, signal))) hits.push([runLink(path, `/clients/${number}`), `client ${number}`, one.run]);
  }
  return hits;
}

async function addressed(address, deployments, signal) {
  const hits = [];
  for (const one of deployments) {
    const path = one.links.self;
    if (one.address.toLowerCase() === address) hits.push([runLink(path), "the contract", one.run]);
    const { found: clients } = await readList(`${path}/clients`, "clients", { limit: 100 }, MOST_CLIENTS, signal);
    const own = clients.find((client) => client.address.toLowerCase() === address);
    if (own) hits.push([runLink(path, `/clients/${own.client}`), `client ${own.client}`, one.run]);
  }
  return { hits, looked: "Searched contracts and all clients." };
}

async function digested(hex, deployments, signal) {
  const hits = [];
  for (const one of deployments) {
    const { found } = await readList(`${one.links.self}/digests/${hex}`, "items", { limit: 100 }, MOST_ROUNDS, signal);
    hits.push(...found.map((item) => hitOf(one, item)));
  }
  return { hits, looked: "Searched every digest of every run." };
}

function hitOf(one, { kind, round, client }) {
  const what = String(kind).replaceAll("_", " ");
  if (round === null) return [runLink(one.links.self), told(what), one.run];
  const text = client === null ? `${what} of round ${round}` : `${what} of client ${client} in round ${round}`;
  return [runLink(one.links.self, client === null ? `/rounds/${round}` : `/rounds/${round}/clients/${client}`), told(text), one.run];
}
