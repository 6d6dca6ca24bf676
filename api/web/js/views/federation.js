// The open round of a live federation: its stage, each client's part, and late clients.

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
        h("p", {}, "This service does not read a mailbox. Start it with the workers' mailbox to show each client's progress and late clients:"),
        command("cmfl serve --mailbox PLACE")),
    ],
  };
}

/** The content of the page, and its updates. */
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
    // A repeated answer is not news.
    if (answer.now !== this.answer?.now) this.newsAt = moment;
    if (answer.as_of.hash !== this.answer?.as_of.hash) this.blockAt = moment;
    [this.answer, this.heardAt] = [answer, moment];
    this.show();
    if (before && (before.stage !== answer.open?.stage || before.round !== answer.open?.round)) say(lineOf(answer));
    return false;
  }

  /** Advance the time; poll after a long silence, because there may be no free stream for this page. */
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

/** Return warnings about stale data; always one element, so that the rest stays in place. */
function warnings({ as_of: asOf, mailbox, open }, silence, standstill) {
  const warn = (id, text) => h("p", { class: "verdict open", id }, text);
  return h("div", {},
    silence > STALE_MS && warn("stale", `The service has sent no update for ${lasting(silence / 1_000)}. The data below are from that time.`),
    open && silence <= STALE_MS && standstill > STILL_MS && warn("still", `No block has arrived for ${lasting(standstill / 1_000)}. The newest is block ${whole(asOf.number)}. Windows and deadlines count blocks, so no round can end without new blocks.`),
    !mailbox.read && warn("unheard", "The mailbox is only partly readable. Missing entries may exist, so no client is marked late."));
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

/** Return the section that a finished run shows instead of an open round. */
const finished = ({ links, contract }) => section("This run is finished",
  h("p", { id: "course" }, badge("stage-finished", STAGES.finished), ` All ${counted(contract.rounds, "round")} have ended. No other round will open. `,
    h("a", { href: runLink(links.self) }, "See the results"), "."));

function course(path, { open, view_seconds: seconds }, now) {
  const begins = open.closing ? open.closing.time + seconds : null;
  return section(`Round ${open.round}`,
    h("p", { id: "course" }, badge("stage-open", wordFor(ROUND_STAGES, open.stage)), " ", sentence(open, now, begins)),
    facts([
      ["opened", `in block ${whole(open.opened.number)}, ${moment(open.opened.at)}`],
      ["commitments accepted until", `block ${whole(open.window_block)}`],
      ["commitments closed", open.closing ? `in block ${whole(open.closing.number)}, ${ago(now - open.closing.time)}` : "not yet"],
      ["aggregation", vote(open, "aggregation")],
      ["election", vote(open, "election")],
      [term("primary"), open.view ? clientLink(path, open.view.primary) : "–"],
      ["can be abandoned from", `block ${whole(open.deadline_block)}`],
      ["late, longest first", open.late.length ? h("span", { id: "late" }, ...late(path, open)) : "none"],
    ]));
}

function late(path, open) {
  const more = open.late.length - MOST_NAMED;
  return [...clientLinks(path, open.late.slice(0, MOST_NAMED)), more > 0 ? ` and ${whole(more)} more` : null];
}

function sentence(open, now, begins) {
  const ends = open.view ? lasting(open.view.ends - now) : null;
  const attempt = open.view ? `In ${ends}, view ${fromOne(open.view.number)} ends and another primary takes over.` : null;
  switch (open.stage) {
    case "committing": return "Trainers train. Each active client commits to its update before it publishes it.";
    case "collecting": return `Commitments are closed. Clients publish payloads and scores. The first view begins in ${lasting(begins - now)}.`;
    case "aggregating": return `The committee votes on the accepted updates. ${attempt}`;
    case "electing": return `The accepted updates are certified. The committee votes on the next committee. ${attempt}`;
    case "deciding": return "Both votes are certified. A member sends the decision to the contract.";
    case "exhausted": return "All views have failed. The round ends when it is abandoned at its deadline.";
    default: return null;
  }
}

function vote(open, phase) {
  const certified = open.certified[phase];
  if (certified !== null) return `certified in view ${fromOne(certified)}`;
  return open.view?.phase === phase ? `running, view ${fromOne(open.view.number)}` : "not yet";
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
  return section("Clients in this round", table("Clients in the open round",
    [["client", "number"], ["role"], ["late"], ["waiting for"], ["committed"], ["payload"], ["scores"], ["votes", "wide"]], rows));
}

function committed({ committed_block: block, counts }) {
  if (block === null) return "–";
  return counts === false ? `block ${whole(block)}, too late` : `block ${whole(block)}`;
}

function scores({ scored }) {
  if (!scored.length) return "–";
  return scored.map(({ size }) => (size === null ? "not a vector of its set" : `of ${counted(size, "update")}`)).join(", ");
}

function votes({ votes: cast, passed, equivocated }) {
  const said = cast.map(({ kind, phase, view, different }) => `${kind} in view ${fromOne(view)} of the ${phase}${different > 1 ? ", two different ones" : ""}`);
  const silent = passed.map(({ phase, view }) => `no request in view ${fromOne(view)} of the ${phase}`);
  if (!said.length && !silent.length && !equivocated) return "–";
  return [[...said, ...silent].join("; "), equivocated ? [" ", badge("bad", "conflicting statements")] : null];
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
  return section("Data sources",
    h("p", {}, "Commitments, bans and decisions come from the chain. Payloads, scores and votes come from the mailbox, and each is signed by the client that it names. Workers' reports about themselves are ignored, because anyone could write them."),
    h("p", { class: "quiet" }, "A late client may be offline, disconnected, or correctly waiting. Lateness proves nothing. Times are block times. This service counts election views from the moment it saw the aggregation certificate. Each worker counts from its own moment."));
}

const ago = (seconds) => `${lasting(seconds)} ago`;
