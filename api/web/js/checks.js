// Values of a round that a page recomputes, each with the shown and the recomputed value.
//
// A check matches, differs, or is open if its inputs are missing. Code compares names and outcomes;
// the texts are in words.js.

import * as digests from "./digests.js";

export const MATCHES = "matches";
export const DIFFERS = "differs";
export const OPEN = "open";

/** Return what can be recomputed of a round.
 *
 * `before` is the head before it: the last round's, or the configuration's digest for round 1; null
 * where it is not known. `contract` is the deployment's part of that name.
 */
export function roundChecks(round, before, contract) {
  if (round.status === "open") return [];
  const made = round.status === "decided" ? decided(round, contract) : [];
  return [committed(round, contract), ...made, nextSeed(round, contract), head(round, before)];
}

/** Return whether a client's commitment is that of the payload which the record names. */
export function commitmentCheck({ client, commitment, payload }) {
  if (!commitment || !payload) return open("commitment", commitment);
  return check("commitment", commitment, () => digests.commitmentOf(client, payload));
}

/** Return the way from a client's update to the root: its leaf, and each hash above. */
export function updateProof(round, client) {
  const ranked = rankedOf(round);
  const own = ranked.find((update) => update.client === client);
  if (!own || ranked.some((update) => !update.payload)) return null;
  const leaves = ranked.map(digests.updateLeaf);
  const first = digests.updateLeaf(own);
  const steps = [];
  let node = first;
  for (const sibling of digests.merklePath(leaves, first)) {
    node = digests.parentOf(node, sibling);
    steps.push({ sibling, node });
  }
  const root = check("updates_root", round.parts.aggregation.updates_root, () => node);
  return { update: own, leaf: first, steps, root };
}

/** Return how many of some checks match, differ and are open. */
export function tally(checks) {
  const number = (outcome) => checks.filter((one) => one.outcome === outcome).length;
  return { matches: number(MATCHES), differs: number(DIFFERS), open: number(OPEN) };
}

function decided(round, contract) {
  const { aggregation, updates, committee, next_committee: next, scores, votes } = round.parts;
  const ranked = rankedOf(round);
  const recorded = round.record.available;
  const accepted = ranked.filter((update) => update.outcome === "accepted").map((update) => update.client);
  const candidates = candidatesOf(ranked, accepted, committee.length, contract);
  const words = ranked.map((update) => digests.rankingWord(update.distance_bits, update.client));
  const certificates = votes.certificates ?? [];
  const results = certificates.map((one) => one.result);
  const bases = [...certificates.map((one) => one.base), scores.base];
  const made = [
    check("accepted_set", aggregation.set, () => digests.setDigest(accepted)),
    check("listed_set", aggregation.set, () => digests.setDigest(aggregation.accepted.map((one) => one.client))),
    check("ranking_digest", aggregation.ranking_digest, () => digests.rankingDigest(words)),
    when(recorded, "updates_root", aggregation.updates_root, () =>
      digests.merkleRoot(ranked.map(digests.updateLeaf)),
    ),
    when(recorded && scores.left_out === 0, "scores_root", aggregation.scores_root, () =>
      digests.merkleRoot(
        scores.claims.filter((one) => one.counted).map((one) => digests.scoresLeaf(one.member, one.digest)),
      ),
    ),
    when(recorded, "reveal", aggregation.reveal, () => digests.revealOf(ascending(ranked).map((one) => one.payload))),
    check("result", aggregation.result, () => digests.resultOf(openingOf(round))),
    check("model", round.model, () => aggregation.model),
    when(recorded, "scored_set", scores.clients_digest, () => digests.setDigest(scores.clients)),
    ...commitments([...updates, ...committee]),
    check("commitments", round.base, () => digests.commitmentsDigest(countedOf(round, contract))),
    check("next_committee", digests.setDigest(next.map((member) => member.client)), () =>
      digests.setDigest(digests.elected(candidates, committee.length, round.next_seed)),
    ),
  ];
  if (certificates.length === 2) {
    made.push(
      check("aggregation_vote", certificates[0].set, () => digests.setDigest(accepted)),
      check("election_vote", certificates[1].set, () => digests.setDigest(candidates)),
      ...results.map((one) => check("voted_result", one, () => digests.resultOf(openingOf(round)))),
      ...bases.map((one) => check("base", one, () => round.base)),
      ...certificates.map((one) => primary(round, one, contract)),
    );
  } else {
    made.push(open("aggregation_vote", null), open("election_vote", null));
  }
  return made;
}

/** Return whether the list of commitments is what is shown of each client, and how many count. */
function committed(round, contract) {
  return check("committed", String(round.committed), () => {
    const { commitments: given, updates, committee } = round.parts;
    const words = new Map(given.map((one) => [one.client, one.commitment]));
    const counted = new Set(countedOf(round, contract).map((one) => one.client));
    const parts = [...updates, ...committee];
    const agree = parts.every((part) =>
      part.commitment === (words.get(part.client) ?? null) && part.committed === counted.has(part.client),
    );
    return agree ? String(parts.filter((part) => counted.has(part.client)).length) : null;
  });
}

/** Return the commitments up to the closing block: the one with the last active client's, or the
 * window's last. */
function countedOf(round, contract) {
  const { commitments: given, updates, committee } = round.parts;
  const missing = new Set([...updates, ...committee.filter((one) => !one.empty_seat)].map((one) => one.client));
  const closing = given.find(({ client }) => missing.delete(client) && missing.size === 0);
  const last = Math.min(round.opened_block + contract.commit_blocks, closing?.block ?? Infinity);
  return given.filter((one) => one.block <= last);
}

function commitments(parts) {
  return parts.filter((part) => part.commitment && part.payload && part.committed).map((part) => ({
    ...commitmentCheck(part),
    client: part.client,
  }));
}

function primary(round, certificate, contract) {
  const phase = certificate.phase === "aggregation" ? 1 : 2;
  const place = () =>
    digests.primaryPlace(round.seed, phase, certificate.view, round.parts.committee.length);
  const replies = certificate.replies.length === contract.replies;
  const one = check("primary", String(certificate.primary.place), () => String(place()));
  return replies ? one : { ...one, outcome: DIFFERS };
}

function nextSeed(round, contract) {
  if (contract.beacon !== "none") return open("next_seed", round.next_seed);
  return check("next_seed", round.next_seed, () =>
    round.status === "decided"
      ? digests.seedAfter(round.seed, round.reveal)
      : digests.seedAfterNothing(round.seed),
  );
}

/** Return whether the head follows from the one before and all that this round shows.
 *
 * Bans move the head where they fall, before the round's end or, after the last round, behind it.
 */
function head(round, before) {
  const isDecided = round.status === "decided";
  const certificates = round.parts.votes.certificates;
  if (before === null || (isDecided && certificates?.length !== 2)) return open("head", round.head);
  return check("head", round.head, () => {
    const commitments = digests.commitmentsDigest(round.parts.commitments);
    const next = digests.setDigest(round.parts.next_committee.map((member) => member.client));
    const ends = [...round.banned.keys(), round.banned.length].map((bans) => {
      const start = round.banned
        .slice(0, bans)
        .reduce((now, client) => digests.headAfterBan(now, round.round, client), before);
      if (!isDecided) return digests.headAfterNothing(start, round.round, round.seed, commitments, next);
      return decidedHead(round, start, commitments, certificates, next);
    });
    return ends.find((end) => end === round.head) ?? ends.at(-1);
  });
}

function decidedHead(round, start, commitments, certificates, next) {
  const signers = certificates.map((one) =>
    one.replies.reduce((places, reply) => places | (1n << BigInt(reply.place)), 0n),
  );
  const views = certificates.map((one) => one.view);
  const votes = digests.votesDigest(views, signers, round.incidents?.digest);
  const accepted = digests.setDigest(
    rankedOf(round).filter((update) => update.outcome === "accepted").map((update) => update.client),
  );
  const result = digests.resultOf(openingOf(round));
  return digests.headAfter(start, round.round, round.seed, commitments, accepted, next, result, votes);
}

function openingOf(round) {
  const { aggregation } = round.parts;
  return {
    ...aggregation,
    record: round.record.digest,
  };
}

function rankedOf(round) {
  return round.parts.updates.filter((update) => update.rank !== null).sort((one, other) => one.rank - other.rank);
}

function candidatesOf(ranked, accepted, members, contract) {
  const clients = ranked.map((update) => update.client);
  const [first, size] = digests.candidates(digests.electsByLot(contract), clients.length, accepted.length, members);
  return clients.slice(first, first + size);
}

const ascending = (updates) => [...updates].sort((one, other) => one.client - other.client);

function when(possible, name, expected, computed) {
  return possible ? check(name, expected, computed) : open(name, expected);
}

const open = (name, expected) => ({ name, expected, computed: null, outcome: OPEN });

/** Return a comparison; what cannot be computed from an answer's words differs. */
function check(name, expected, compute) {
  let computed = null;
  try {
    computed = compute();
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError)) throw error;
  }
  return { name, expected, computed, outcome: computed === expected && expected !== null ? MATCHES : DIFFERS };
}
