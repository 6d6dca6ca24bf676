// The open round of a live federation: its stage, everybody's part by the evidence, and who is late.

import { h, told } from "../dom.js";
import { counted, fromOne, lasting, moment, whole } from "../format.js";
import { badge, command, facts, figures, say, section, table, term } from "../parts.js";
import { deploymentPath, runLink } from "../places.js";
import { Refused, read } from "../rest.js";
import { renew } from "../renew.js";
import { clientLink, clientLinks, crumbsOf, roundLink, statusBadge, tabs, viewsText } from "../run.js";
import { follow } from "../stream.js";
import { ACTS, ROLES, ROUND_STAGES, STAGES, wordFor } from "../words.js";

const TICK_MS = 1_000;
const SILENCE_MS = 5_000;
const STALE_MS = 15_000;
const STILL_MS = 60_000;
const MOST_NAMED = 12;

/** Return the page. */
export async function federation(place, signal) {
  const path = deploymentPath(place);
  const deployment = await read(path, signal);
  const own = deployment.links.federation;
  const part = h("div", {});
  if (own) new Page(path, own, deployment.contract.rounds, part, signal).begin(await read(own, signal));
  return {
    title: `${deployment.run}, live`,
    short: "Live",
    crumbs: crumbsOf(deployment),
    nodes: [
      h("header", { class: "head" }, h("h1", {}, told(deployment.run), ", live"), await tabs(deployment, "federation")),
      own ? part : deployment.state.stage === "finished" ? finished(deployment) : section("The open round",
        h("p", {}, "This service reads no mailbox. With the one that the workers are given it shows who has done what, and who is late:"),
        command("cmfl serve --mailbox PLACE")),
    ],
  };
}

/** What the page shows, and how it goes on. */
class Page {
  constructor(path, own, rounds, part, signal) {
    Object.assign(this, { path, own, rounds, part, signal });
  }

  begin(answer) {
    this.take(answer);
    follow(`${this.own}/events`, (one) => this.take(one), this.signal);
    const timer = setInterval(() => document.hidden || this.tick(), TICK_MS);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  take(answer) {
    const [before, moment] = [this.answer?.open, performance.now()];
    // What a service tells again while it cannot look is no news.
    if (answer.now !== this.answer?.now) this.newsAt = moment;
    if (answer.as_of.hash !== this.answer?.as_of.hash) this.blockAt = moment;
    [this.answer, this.heardAt] = [answer, moment];
    this.show();
    if (before && (before.stage !== answer.open?.stage || before.round !== answer.open?.round)) say(lineOf(answer));
    return false;
  }

  /** Let the time go on; ask where no event has come for long: there may be no stream left for this page. */
  async tick() {
    if (performance.now() - this.heardAt < SILENCE_MS) {
      this.show();
      return;
    }
    this.heardAt = performance.now();
    try {
      this.take(await read(this.own, this.signal));
    } catch (error) {
      if (this.signal.aborted) return;
      if (!(error instanceof Refused)) throw error;
      this.show();
    }
  }

  show() {
    const silence = performance.now() - this.newsAt;
    const now = this.answer.now + Math.min(silence, STALE_MS) / 1_000;
    const parts = [
      warnings(this.answer, silence, performance.now() - this.blockAt),
      heading(this.answer, this.rounds),
      ...(this.answer.open ? [course(this.path, this.answer, now), clients(this.path, this.answer.open, now)] : [none(this.answer, this.path, this.rounds)]),
      last(this.path, this.answer.rounds),
      origin(),
    ];
    renew(this.part, h("div", {}, ...parts));
  }
}

/** Return what keeps the rest from being true now; always one element, so that the rest stays in its place. */
function warnings({ as_of: asOf, mailbox, open }, silence, standstill) {
  const warn = (id, text) => h("p", { class: "verdict open", id }, text);
  return h("div", {},
    silence > STALE_MS && warn("stale", `The service has told nothing newer for ${lasting(silence / 1_000)}. What is below is as it was then.`),
    open && silence <= STALE_MS && standstill > STILL_MS && warn("still", `No block has come for ${lasting(standstill / 1_000)}: ${whole(asOf.number)} is the newest. Windows and deadlines count blocks; without any, no round ends.`),
    !mailbox.read && warn("unheard", "The mailbox cannot be read as a whole now: what is missing below may be there, and nobody is called late."));
}

function lineOf({ open, stage }) {
  return open ? `Round ${open.round}: ${wordFor(ROUND_STAGES, open.stage)}.` : wordFor(STAGES, stage);
}

function heading({ open, as_of: asOf }, rounds) {
  return figures([
    [term("round"), open ? whole(open.round) : "–", `of ${whole(rounds)}`],
    open && [term("view"), open.view ? fromOne(open.view.number) : "–", open.view ? `of the ${open.view.phase}` : null],
    open && [term("late"), whole(open.late.length), `of ${counted(open.clients.length, "client")}`],
    ["block", whole(asOf.number), asOf.finalized ? "final" : "not final yet"],
  ]);
}

const none = ({ stage }, path, rounds) => (stage === "finished"
  ? finished({ links: { self: path }, contract: { rounds } })
  : section("No round is open", h("p", { id: "course" }, badge(`stage-${stage}`, wordFor(STAGES, stage)))));

/** Return what a run that has ended shows instead of an open round. */
const finished = ({ links, contract }) => section("This run is finished",
  h("p", { id: "course" }, badge("stage-finished", STAGES.finished), ` All ${counted(contract.rounds, "round")} have ended, and no round will open. `,
    h("a", { href: runLink(links.self) }, "See what the run came to"), "."));

function course(path, { open, view_seconds: seconds }, now) {
  const begins = open.closing ? open.closing.time + seconds : null;
  return section(`Round ${open.round}`,
    h("p", { id: "course" }, badge("stage-open", wordFor(ROUND_STAGES, open.stage)), " ", sentence(open, now, begins)),
    facts([
      ["opened", `in block ${whole(open.opened.number)}, ${moment(open.opened.at)}`],
      ["commitments are taken until", `block ${whole(open.window_block)}`],
      ["commitments closed", open.closing ? `in block ${whole(open.closing.number)}, ${ago(now - open.closing.time)}` : "not yet"],
      ["aggregation", vote(open, "aggregation")],
      ["election", vote(open, "election")],
      [term("primary"), open.view ? clientLink(path, open.view.primary) : "–"],
      ["may be abandoned from", `block ${whole(open.deadline_block)} on`],
      ["late, the longest first", open.late.length ? h("span", { id: "late" }, ...late(path, open)) : "nobody"],
    ]));
}

function late(path, open) {
  const more = open.late.length - MOST_NAMED;
  return [...clientLinks(path, open.late.slice(0, MOST_NAMED)), more > 0 ? ` and ${whole(more)} more` : null];
}

function sentence(open, now, begins) {
  const ends = open.view ? lasting(open.view.ends - now) : null;
  const attempt = open.view ? `view ${fromOne(open.view.number)}, which passes to another primary in ${ends}` : null;
  switch (open.stage) {
    case "committing": return "Trainers train. Who is active commits to an update before anybody sees it.";
    case "collecting": return `Commitments are closed. Payloads and scores are published; the first view begins in ${lasting(begins - now)}.`;
    case "aggregating": return `The committee votes on what is accepted: ${attempt}.`;
    case "electing": return `What is accepted is certified. The committee votes on who serves next: ${attempt}.`;
    case "deciding": return "Both votes are certified. A member brings the decision to the contract.";
    case "exhausted": return "No view is left. The round ends when somebody abandons it at its deadline.";
    default: return null;
  }
}

function vote(open, phase) {
  const certified = open.certified[phase];
  if (certified !== null) return `certified in view ${fromOne(certified)}`;
  return open.view?.phase === phase ? `goes on in view ${fromOne(open.view.number)}` : "not yet";
}

function clients(path, open, now) {
  const rows = open.clients.map((one) => h("tr", { "data-client": one.client, class: one.late_since === null ? null : "is-late" },
    h("th", { scope: "row", class: "number" }, clientLink(path, one.client, String(one.client))),
    h("td", {}, wordFor(ROLES, one.role), one.client === open.view?.primary ? [" ", badge("elected", "primary")] : null, one.banned ? [" ", badge("bad", "banned")] : null),
    h("td", {}, one.late_since === null ? "–" : badge("open", `for ${lasting(now - one.late_since)}`)),
    h("td", {}, one.awaited.map(({ act }) => wordFor(ACTS, act)).join(", ") || "–"),
    h("td", {}, committed(one)),
    h("td", {}, one.payload ? "published" : "–"),
    h("td", {}, scores(one)),
    h("td", { class: "wide" }, votes(one))));
  return section("Everybody's part", table("Everybody's part in the open round",
    [["client", "number"], ["role"], ["late"], ["waited for"], ["committed"], ["payload"], ["scores"], ["votes", "wide"]], rows));
}

function committed({ committed_block: block, counts }) {
  if (block === null) return "–";
  return counts === false ? `block ${whole(block)}, too late` : `block ${whole(block)}`;
}

function scores({ scored }) {
  if (!scored.length) return "–";
  return scored.map(({ size }) => (size === null ? "no vector of its set" : `of ${counted(size, "update")}`)).join(", ");
}

function votes({ votes: cast, passed, equivocated }) {
  const said = cast.map(({ kind, phase, view, different }) => `${kind} in view ${fromOne(view)} of the ${phase}${different > 1 ? ", two different ones" : ""}`);
  const silent = passed.map(({ phase, view }) => `no request in view ${fromOne(view)} of the ${phase}`);
  if (!said.length && !silent.length && !equivocated) return "–";
  return [[...said, ...silent].join("; "), equivocated ? [" ", badge("bad", "contradicts itself")] : null];
}

function last(path, rounds) {
  if (!rounds.length) return null;
  return section("Last rounds", table("The last rounds, newest first",
    [["round", "number"], ["state"], ["view of the votes", "number"], ["opened", "wide"], ["took", "number"]],
    rounds.map((one) => h("tr", {},
      h("th", { scope: "row", class: "number" }, roundLink(path, one.round, String(one.round))),
      h("td", {}, statusBadge(one.status)),
      h("td", { class: "number" }, viewsText(one.views)),
      h("td", { class: "wide" }, `block ${whole(one.opened.number)}, ${moment(one.opened.at)}`),
      h("td", { class: "number" }, one.seconds === null ? "–" : lasting(one.seconds))))));
}

function origin() {
  return section("Where this comes from",
    h("p", {}, "Commitments, bans and decisions stand on the chain. Payloads, scores and votes are what the mailbox holds with the signature of whom they name. What workers write about themselves is not read: anybody could write that."),
    h("p", { class: "quiet" }, "Who is late may be away, cut off, or right to wait; it is no proof of anything. Times are the chain's. The views of the election count from when this service saw the certificate of the aggregation, and each worker counts from when it did."));
}

const ago = (seconds) => `${lasting(seconds)} ago`;
