// The texts of the pages: names for codes, and the glossary.

/** The glossary: shown as hints, and on a page. */
export const GLOSSARY = {
  round: "One training step: trainers train, the committee scores their updates, decides, and elects the next committee.",
  decided: "Both committee votes are on the chain: the accepted updates and the next committee.",
  abandoned: "No decision reached the contract before the deadline. The model does not change, and the next committee is drawn by lot.",
  open: "The round is not over yet.",
  trainer: "A client that the round's seed selects to train.",
  member: "A client on the committee: it scores the trainers' updates and votes.",
  sampled: "Selected as a trainer by the round's seed, and not banned.",
  served: "Had a seat on the committee: the client was not banned when the round opened.",
  committed: "The client's commitment was on the chain by the closing block. A commitment is a hash that fixes an update before it is published.",
  ranked: "Listed in the decision's ranking: the update was usable, and the committee measured its distance.",
  accepted: "The update is part of the new model.",
  "not accepted": "Ranked, but beyond the cut-off: the update was not used.",
  "dropped out": "Sampled, but not ranked: no commitment, no payload, or a payload that is not an update.",
  counted: "The round's record includes the member's scores.",
  refused: "The member's scores were left out. The record gives the reason.",
  voted: "Signed the certificate that decided a vote, as primary or in a reply.",
  primary: "The member whose turn it was to propose a result. The seed fixes the order.",
  view: "One attempt at a vote, with its own primary. A second view means that the first primary failed or that its proposal was rejected.",
  late: "Has not yet done what an honest, reachable client would have done by now. Lateness proves nothing: messages may still be on their way.",
  certificate: "The primary's signed request with enough matching signed replies. The contract checks it before it accepts a decision.",
  banned: "Signed two different statements where only one is allowed. The contract verified both signatures. The client takes no part from the next round on. Its page shows the statements.",
  "empty seat": "The seat of a member that was banned when the round opened. It has no vote, and the round does not wait for it.",
  distance: "The distance of an update from the members' updates (strategies I and II) or from the round's other updates (strategy III). Smaller is closer. Distances have no unit.",
  "cut-off": "The position or distance that separates accepted updates from the others.",
  elected: "On the next committee. The run's strategy elects the middle of the ranking or the accepted clients. If too many are accepted, members are drawn by lot. If too few are accepted, the next clients in the ranking are added.",
  weight: "The update's share of the new model: the client's share of all accepted clients' samples. In strategy III, all weights are equal.",
  samples: "The number of training examples that a client claims to have. It is fixed when the run begins.",
  seed: "The number that determines every random choice in a round.",
  head: "A hash that commits to the whole history up to a round. It is enough to check everything before it.",
  base: "A hash of all commitments that count in a round. Both votes refer to it.",
  record: "The document with the basis of the decision, signed off by the committee's majority.",
  incidents: "Failures reported by the sender of the decision. No vote covers them, and silence cannot be proven.",
  payload: "A trained update. The chain stores its commitment, and the record stores its digest.",
  digest: "A hash. Two files with the same digest are the same file.",
  final: "A block that the chain can no longer revert.",
  claimed: "Reported by the run itself. An audit does not verify it.",
  floor: "The accuracy of always predicting the most frequent class. An untrained guess reaches this accuracy.",
};

/** The name of each recomputed value, and the meaning of a match. */
export const CHECKS = {
  accepted_set: ["Accepted set, from the ranking", "the set's digest matches the updates shown as accepted"],
  listed_set: ["Accepted set, as listed with weights", "the list with weights names the same clients in the same order"],
  ranking_digest: ["Ranking", "the exact clients and distances hash to the ranking that was voted on"],
  updates_root: ["Updates (Merkle root)", "payloads, ranks, distances and outcomes are the leaves of the tree that was voted on"],
  scores_root: ["Scores (Merkle root)", "the scores shown as counted are the leaves of the tree that was voted on"],
  reveal: ["Revealed payloads", "the digests of all ranked payloads hash to the value used for the next seed"],
  result: ["Result of the vote", "model, roots, ranking, payloads and record hash to the result"],
  model: ["New model", "the round and its aggregation name the same model"],
  scored_set: ["Scored clients", "the list of scored clients hashes to the digest that members signed"],
  commitment: ["Commitment of client", "the payload's digest opens the commitment on the chain"],
  committed: ["Number of commitments", "the commitments up to the closing block are the ones shown as committed"],
  commitments: ["Commitments that count", "the commitments up to the closing block, in the chain's order, hash to the base"],
  aggregation_vote: ["Vote on the accepted set", "the certificate is for the accepted clients shown"],
  next_committee: ["Next committee", "it follows from the ranking and, for a draw by lot, from the next seed"],
  election_vote: ["Vote on the next committee", "the certificate is for the candidates that follow from the ranking"],
  voted_result: ["Result in a certificate", "the certificate is for the result that follows from the data shown"],
  base: ["Base of votes and scores", "all votes and scores refer to the same commitments"],
  primary: ["Primary and number of replies", "the seed makes this member the primary of this view, and enough members replied"],
  next_seed: ["Next seed", "it follows from this round's seed and the revealed payloads"],
  head: ["Head", "it follows from the previous head and this round's data"],
};

export const OUTCOMES = {
  accepted: "accepted",
  not_accepted: "not accepted",
  dropped_out: "dropped out",
  undecided: "undecided",
};
export const REASONS = {
  no_commitment: "no commitment by the closing block",
  payload_missing: "payload missing",
  payload_malformed: "payload is not an update of the model",
  not_a_vector: "not a score vector",
  of_another: "for another round, member or base",
  no_usable_update: "member has no usable update to compare with",
  other_clients: "scores differ from the listed clients",
  out_of_range: "a distance is out of range",
  false_distance: "a distance is wrong",
  two_vectors: "signed two different vectors",
};
export const BANS = {
  request: "signed two different requests for one vote",
  reply: "signed two different replies in one vote",
  scores: "signed two different score vectors",
  unknown: "signed two different statements",
};
export const INCIDENTS = {
  silent: "sent no request as primary",
  no_quorum: "reached no quorum for its request",
  wrong_proposal: "signed a wrong request",
  equivocation: "signed two different votes",
};
/** Kinds of evidence. */
export const EVIDENCE = {
  ban: "banned",
  refused_scores: "scores refused",
  incident: "incident",
  dropout: "left out",
};
export const FORMS = {
  first: "the nearest in the ranking",
  last: "the farthest in the ranking",
  below_two: "all at a distance below 2, or the nearest if there is none",
};
export const ELECTIONS = {
  first: "the middle of the ranking",
  last: "the middle of the ranking",
  below_two: "the accepted clients: drawn by lot if too many, with the next in the ranking if too few",
};
export const STAGES = { registering: "registering clients", open: "running", finished: "finished" };
/** Stages of an open round, roles of clients, and awaited actions. */
export const ROUND_STAGES = {
  committing: "commitments",
  collecting: "payloads",
  aggregating: "aggregation",
  electing: "election",
  deciding: "decision",
  exhausted: "all views failed",
};
export const ROLES = { trainer: "trainer", member: "member", empty_seat: "empty seat" };
export const ACTS = {
  commitment: "commitment",
  payload: "payload",
  scores: "scores",
  request: "request",
  reply: "reply",
  decision: "decision",
};

/** The ten steps of an audit, in their order. */
export const STEPS = [
  "deployment and parameters",
  "head chain and seeds",
  "certificates, signatures and bases",
  "sampling from the seed",
  "blobs equal to their commitments",
  "each member's distances",
  "mean distances, bit for bit",
  "ranking, accepted set and election",
  "the model, bit for bit",
  "completeness of the rounds",
];

/** Reasons for a missing verdict. */
export const WHY_NO_VERDICT = {
  memory: "the verification needs more memory than the service allows.",
  seconds: "the verification took longer than the service allows.",
  chain: "the chain could not be opened.",
  fault: "an internal error of the service; its log has details.",
};
export const PERMISSIONS = {
  token_needed: "To start a verification, enter a token of this service.",
  this_machine_only: "This service has no tokens, so you can start a verification only on its own machine.",
  off: "Verifications are turned off on this service.",
};

/** Return the text for a code, or the code if it has none. */
export const wordFor = (words, code) => (Object.hasOwn(words, code) ? words[code] : code);
