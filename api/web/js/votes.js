// The two certificates of a round: the proposer, the signers, and reported incidents.

import { h } from "./dom.js";
import { counted, whole } from "./format.js";
import { badge, digest, more, section, table, term } from "./parts.js";
import { clientLink } from "./run.js";
import { INCIDENTS, REASONS, wordFor } from "./words.js";

const PHASES = { aggregation: "the accepted updates", election: "the next committee" };

/** Return the section about a round's committee and its votes. */
export function votes(path, round) {
  const { certificates, incidents, replies_needed: needed } = round.parts.votes;
  const columns = [["place", "number"], ["member", "text", "row"], ["scores", "wide"],
    ...(certificates ?? []).map((one) => [`vote on ${PHASES[one.phase]}`])];
  const rows = round.parts.committee.map((member) => [
    whole(member.place),
    clientLink(path, member.client),
    scoresOf(member, round.status),
    ...(certificates ?? []).map((one) => voteOf(one, member)),
  ]);
  return section(round.status === "decided" ? "Committee and votes" : "Committee",
    certificates === null ? h("p", {}, "The signatures are not in the contract's call data, because another contract sent the decision.") : null,
    certificates?.length ? h("p", { class: "quiet" }, "A ", term("certificate"), " decides a vote: the ", term("primary"), `'s request and ${counted(needed, "matching reply", "matching replies")}. `,
      ...certificates.flatMap((one) => [`The vote on ${PHASES[one.phase]} was decided in `, term("view"), ` ${one.view + 1}. `])) : null,
    table("Committee and votes", columns, rows),
    certificates?.length ? more("signatures", "Signatures", ...certificates.map(signatures)) : null,
    incidents.length ? said(path, incidents) : null);
}

function scoresOf(member, status) {
  if (member.empty_seat) return badge("plain", "empty seat");
  if (member.scores === "refused") {
    const why = member.refused.map((one) => wordFor(REASONS, one.reason.name) + (one.named === null ? "" : ` (client ${one.named})`));
    return [badge("bad", "refused"), ` ${why.join("; ")}`];
  }
  return { counted: badge("good", "counted"), none: "none", unknown: status === "decided" ? "unknown (record missing)" : "no record of the round" }[member.scores] ?? "–";
}

function voteOf(certificate, member) {
  if (member.empty_seat) return h("span", { class: "quiet" }, "no vote");
  if (certificate.primary.place === member.place) return badge("elected", "primary, signed");
  return certificate.replies.some((reply) => reply.place === member.place) ? badge("good", "signed") : h("span", { class: "quiet" }, "not in the certificate");
}

function signatures(certificate) {
  const signers = [{ ...certificate.primary, what: "request" }, ...certificate.replies.map((one) => ({ ...one, what: "reply" }))];
  return table(`Signatures of the vote on ${PHASES[certificate.phase]}`, [["place", "number"], ["client", "number", "row"], ["what"], ["signature"]],
    signers.map((one) => [whole(one.place), String(one.client), one.what, digest(one.signature, "signature")]), { hidden: false });
}

function said(path, incidents) {
  return h("div", {}, h("h3", {}, "Reported incidents"),
    h("p", { class: "quiet" }, "The sender of the decision reported these ", term("incidents"), ". They are not verified."),
    h("ul", { class: "remarks" }, ...incidents.map((one) => h("li", {},
      `Vote on ${PHASES[one.phase]}, view ${one.view + 1}: `, clientLink(path, one.member, `member ${one.member}`), ` ${wordFor(INCIDENTS, one.kind.name)}`,
      one.votes.length ? `, with ${counted(one.votes.length, "signed vote")} as evidence.` : "."))));
}
