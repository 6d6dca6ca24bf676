// Words: what codes are called, and what each word of the pages means (docs/service.md).

/** What the words mean; shown beside them, and all together on a page of their own. */
export const GLOSSARY = {
  round: "One turn: trainers train, the committee scores them, decides, and elects the next committee.",
  decided: "Both votes of the committee are on the chain: what is accepted, and who serves next.",
  abandoned: "No decision reached the contract before the deadline. The model stays, and the next committee is drawn by lot.",
  open: "The round is not over yet.",
  trainer: "A client that the round's seed draws to train; nobody chooses it.",
  member: "A client on the committee: it scores the trainers' updates and votes.",
  sampled: "Drawn by the round's seed as a trainer, and not banned.",
  served: "Was a member with a seat, that is one that was not banned when the round opened.",
  committed: "Its commitment was on the chain by the closing block. A commitment is a hash that fixes an update before anybody sees it.",
  ranked: "In the decision's ranking: its update was usable, and the committee measured its distance.",
  accepted: "Its update entered the new model.",
  "not accepted": "Ranked, but beyond the cut-off: its update was not used.",
  "dropped out": "Was sampled, but the decision does not rank it: no commitment, no payload, or a payload that is no update.",
  counted: "The round's record counts the member's scores.",
  refused: "The member's scores were left out, for a reason that the record names.",
  voted: "Signed the certificate that decided a vote, as its primary or in a reply.",
  primary: "The member whose turn it was to propose; the seed says which.",
  view: "One attempt at a vote, with its own primary. A second view means that the first primary failed, or that its proposal was rejected.",
  late: "Has not yet done what an honest, reachable client would have done by now. This proves nothing: messages may still be on their way.",
  certificate: "The primary's signed request and enough equal signed replies: what the contract checks before it takes a decision.",
  banned: "Signed two different statements where one is allowed, and the contract verified both. It takes no part from the next round on. Its page shows which statements.",
  "empty seat": "A member that was banned when the round opened. It has no vote, and the round does not wait for it.",
  distance: "How far an update lies from the members' own in strategies I and II, and from the round's other updates in strategy III. Smaller is closer. It has no unit.",
  "cut-off": "Up to where in the ranking updates are accepted.",
  elected: "On the next committee. The run's strategy decides which clients these are: the middle of the ranking, or the accepted. Of too many accepted, a lot draws as many as there are places; to too few, the next of the ranking are added.",
  weight: "The share of an update in the new model: its client's samples among those of all accepted, or the same for all in strategy III.",
  samples: "How many training examples a client claims to have; fixed when the run began.",
  seed: "The number from which all chance in a round follows.",
  head: "One hash that commits to the whole history up to a round. With it, everything before can be checked.",
  base: "A hash of all commitments that count in a round: what both votes stand on.",
  record: "The document in which the committee's majority recorded the basis of the decision.",
  incidents: "Failures that the sender of the decision reports. No vote covers them, and silence cannot be proven.",
  payload: "A trained update itself; the chain holds its commitment, and the record its digest.",
  digest: "A hash: two files with the same digest are the same file.",
  final: "A block that the chain will not take back any more.",
  claimed: "Written by the run itself. No audit proves it.",
  floor: "The accuracy of always answering the most frequent class: what a model without any knowledge reaches.",
};

/** What each recomputed thing is called, and what a match says. */
export const CHECKS = {
  accepted_set: ["Accepted set, from the ranking", "the set's digest is that of the updates shown as accepted"],
  listed_set: ["Accepted set, as listed with weights", "the list with weights names the same clients in the same order"],
  ranking_digest: ["Ranking", "clients and distances, bit for bit, hash to the ranking that was voted on"],
  updates_root: ["Updates (Merkle root)", "payloads, ranks, distances and outcomes are the leaves of the tree that was voted on"],
  scores_root: ["Scores (Merkle root)", "the scores shown as counted are the leaves of the tree that was voted on"],
  reveal: ["Revealed payloads", "all ranked payloads' digests hash to the value that makes the next seed"],
  result: ["Result of the vote", "model, roots, ranking, payloads and record hash to the result"],
  model: ["New model", "the round and its aggregation name the same model"],
  scored_set: ["Scored clients", "the list of scored clients hashes to the digest that members signed"],
  commitment: ["Commitment of client", "the payload's digest opens the commitment on the chain"],
  committed: ["Number of commitments", "those listed by the closing block are the ones shown as committed"],
  commitments: ["Commitments that count", "those up to the closing block, in the chain's order, hash to the base"],
  aggregation_vote: ["Vote on the accepted set", "the certificate is for the accepted clients shown"],
  next_committee: ["Next committee", "it follows from the ranking, and in a lot from the next seed"],
  election_vote: ["Vote on the next committee", "the certificate is for those whom the ranking makes candidates"],
  voted_result: ["Result in a certificate", "the certificate is for the result that follows from what is shown"],
  base: ["Base of votes and scores", "all speak of the same commitments"],
  primary: ["Primary and number of replies", "the seed gives this view to this member, and as many replied as are needed"],
  next_seed: ["Next seed", "it follows from this round's seed and the revealed payloads"],
  head: ["Head", "it follows from the head before and everything this round shows"],
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
  payload_malformed: "payload is no update of the model",
  not_a_vector: "no score vector",
  of_another: "of another round, member or base",
  no_usable_update: "no update to score by",
  other_clients: "scores other clients than it claims",
  out_of_range: "a distance is out of range",
  false_distance: "a distance is false",
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
  no_quorum: "found no quorum for its request",
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
  first: "the nearest of the ranking",
  last: "the farthest of the ranking",
  below_two: "all at a distance below 2, or the nearest if there is none",
};
export const ELECTIONS = {
  first: "the middle of the ranking",
  last: "the middle of the ranking",
  below_two: "the accepted: drawn by lot if too many, with the next of the ranking if too few",
};
export const STAGES = { registering: "registering clients", open: "running", finished: "finished" };
/** How far an open round is, what a client is in it, and what is waited for. */
export const ROUND_STAGES = {
  committing: "commitments",
  collecting: "payloads",
  aggregating: "aggregation",
  electing: "election",
  deciding: "decision",
  exhausted: "no view left",
};
export const ROLES = { trainer: "trainer", member: "member", empty_seat: "empty seat" };
export const ACTS = {
  commitment: "its commitment",
  payload: "its payload",
  scores: "its scores",
  request: "its request",
  reply: "its reply",
  decision: "the decision",
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
  "nothing missing in between",
];

/** Why a verification has no verdict. */
export const WHY_NO_VERDICT = {
  memory: "it needs more memory than the service allows.",
  seconds: "it took longer than the service allows.",
  chain: "the chain could not be opened.",
  fault: "an internal error of the service; its log has details.",
};
export const PERMISSIONS = {
  token_needed: "To begin one, show a token that this service knows.",
  this_machine_only: "No token is set here, so a verification can only be started on the service's own machine.",
  off: "This service is set to run no verifications.",
};

/** Return a code's word; one that is new here as it is. */
export const wordFor = (words, code) => (Object.hasOwn(words, code) ? words[code] : code);
