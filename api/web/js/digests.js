// The protocol's digests, made again from what an answer shows (docs/reference/protocol).

import { keccak_256 } from "../vendor/noble-hashes/sha3.js";

const NONE = "0x" + "00".repeat(32);

/** Return the keccak256 of joined bytes, as 0x-hex. */
export const keccak = (...parts) => hexOf(keccak_256(joined(parts)));

/** Return a number as big-endian bytes of a fixed width. */
export function uint(value, width) {
  let rest = BigInt(value);
  if (rest < 0n || rest >= 1n << BigInt(8 * width)) throw new RangeError(`${value} does not fit ${width} bytes`);
  const bytes = new Uint8Array(width);
  for (let place = width - 1; place >= 0; place -= 1) {
    bytes[place] = Number(rest & 255n);
    rest >>= 8n;
  }
  return bytes;
}

/** Return the digest of a set of clients, in the order given. */
export const setDigest = (clients) => keccak(...array(clients));

/** Return a ranking's word: the distance's bits, then the client. */
export const rankingWord = (bits, client) => (BigInt(bits) << 32n) | BigInt(client);

/** Return the digest of ranking words. */
export const rankingDigest = (words) => keccak(...array(words));

/** Return the commitment that a payload opens. */
export const commitmentOf = (client, payload) => keccak(uint(client, 4), bytesOf(payload));

/** Return the digest of commitments, in the chain's order. */
export const commitmentsDigest = (given) =>
  given.reduce((now, { client, commitment }) => keccak(bytesOf(now), uint(client, 4), bytesOf(commitment)), NONE);

/** Return a client's leaf among the updates. */
export const updateLeaf = ({ client, payload, rank, distance_bits: bits, outcome }) =>
  leaf(word(client), bytesOf(payload), word(rank), word(bits), word(outcome === "accepted" ? 1 : 0));

/** Return a member's leaf among the scores. */
export const scoresLeaf = (member, digest) => leaf(word(member), bytesOf(digest));

/** Return the root over leaves: OpenZeppelin's StandardMerkleTree. */
export const merkleRoot = (leaves) => (leaves.length ? tree(leaves)[0] : NONE);

/** Return the siblings on the way from a leaf to the root. */
export function merklePath(leaves, own) {
  const nodes = tree(leaves);
  const path = [];
  for (let place = nodes.lastIndexOf(own); place > 0; place = (place - 1) >> 1) {
    path.push(nodes[place % 2 ? place + 1 : place - 1]);
  }
  return path;
}

/** Return the hash of two nodes, the smaller first. */
export const parentOf = (one, other) =>
  one < other ? keccak(bytesOf(one), bytesOf(other)) : keccak(bytesOf(other), bytesOf(one));

/** Return what both votes are for: all that the opening holds. */
export const resultOf = (opening) =>
  keccak(
    bytesOf(opening.model),
    bytesOf(opening.updates_root),
    bytesOf(opening.scores_root),
    bytesOf(opening.ranking_digest),
    bytesOf(opening.reveal),
    bytesOf(opening.record),
  );

/** Return what the payloads reveal together: their digests, joined. */
export const revealOf = (payloads) => keccak(...payloads.map(bytesOf));

/** Return the place of a view's primary among the members. */
export const primaryPlace = (seed, phase, view, members) =>
  Number(BigInt(keccak(bytesOf(seed), uint(phase, 1), uint(view, 4))) % BigInt(members));

/** Return whether the next committee is drawn among the accepted, as strategy 3 does. */
export const electsByLot = ({ form }) => form.name === "below_two";

/** Return where the candidates for the next committee begin in the ranking, and their number.
 *
 * In a lot they are the accepted, and the next in the ranking if those are too few.
 */
export const candidates = (byLot, ranked, accepted, members) =>
  byLot ? [0, Math.max(accepted, members)] : [Math.floor((ranked - members) / 2), members];

/** Return those of the candidates whom the next seed draws, each set with the same chance. */
export function elected(clients, members, seed) {
  let wanted = members;
  return clients.filter((_, place) => {
    const left = clients.length - place;
    const isElected = wanted === left || BigInt(keccak(bytesOf(seed), ascii("elected"), uint(place, 4))) % BigInt(left) < wanted;
    if (isElected) wanted -= 1;
    return isElected;
  });
}

/** Return the seed after a decided round; without a beacon. */
export const seedAfter = (seed, reveal) => keccak(bytesOf(seed), bytesOf(reveal), bytesOf(NONE));

/** Return the seed after an abandoned round; without a beacon. */
export const seedAfterNothing = (seed) => keccak(bytesOf(seed), ascii("abandoned"), bytesOf(NONE));

/** Return what the head says of both votes. */
export const votesDigest = (views, signers, incidents) =>
  keccak(word(views[0]), word(views[1]), word(signers[0]), word(signers[1]), bytesOf(incidents ?? NONE));

/** Return the head after a decision. */
export const headAfter = (head, round, seed, commitments, accepted, next, result, votes) =>
  keccak(bytesOf(head), uint(round, 8), ...[seed, commitments, accepted, next, result, votes].map(bytesOf));

/** Return the head after an abandoned round. */
export const headAfterNothing = (head, round, seed, commitments, next) =>
  keccak(bytesOf(head), uint(round, 8), bytesOf(seed), ascii("abandoned"), bytesOf(commitments), bytesOf(next));

/** Return the head after a ban. */
export const headAfterBan = (head, round, client) =>
  keccak(bytesOf(head), uint(round, 8), ascii("banned"), uint(client, 4));

const word = (value) => uint(value, 32);
const ascii = (text) => new TextEncoder().encode(text);
const leaf = (...fields) => keccak(bytesOf(keccak(...fields)));
const array = (values) => [word(32), word(values.length), ...values.map(word)];

function tree(leaves) {
  const sorted = [...leaves].sort();
  const nodes = new Array(2 * sorted.length - 1);
  sorted.forEach((one, place) => {
    nodes[nodes.length - 1 - place] = one;
  });
  for (let place = nodes.length - 1 - sorted.length; place >= 0; place -= 1) {
    nodes[place] = parentOf(nodes[2 * place + 1], nodes[2 * place + 2]);
  }
  return nodes;
}

function bytesOf(hex) {
  if (!/^0x(?:[0-9a-f]{2})*$/.test(hex)) throw new TypeError(`${String(hex).slice(0, 80)} is not 0x-hex`);
  return Uint8Array.from({ length: hex.length / 2 - 1 }, (_, place) =>
    Number.parseInt(hex.slice(2 * place + 2, 2 * place + 4), 16),
  );
}

function hexOf(bytes) {
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function joined(parts) {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let place = 0;
  for (const part of parts) {
    all.set(part, place);
    place += part.length;
  }
  return all;
}
