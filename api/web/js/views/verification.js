// Audits that the service runs: begun here, ten steps ticking, the verdict, and those of before.

import { download } from "../downloads.js";
import { fill, h, told } from "../dom.js";
import { counted, listed, moment, whole } from "../format.js";
import { badge, digest, facts, say, section, table, unseen } from "../parts.js";
import { deploymentPath, runLink } from "../places.js";
import { Refused, has, read, send } from "../rest.js";
import { clientLink, clientLinks, crumbsOf, roundLink, tabs } from "../run.js";
import { follow } from "../stream.js";
import { tokenForm } from "../token.js";
import { PERMISSIONS, STEPS, VERIFICATION_STATES, WHY_NO_VERDICT, wordFor } from "../words.js";

const MOST_FINDINGS = 100;
const MARK = { passed: ["✓", "good"], failed: ["✗", "bad"], incomplete: ["?", "open"], "not checkable": ["?", "open"] };
const MISDEEDS = ["false scores", "two vectors", "wrong proposal", "equivocation", "ban"];
const UNKNOWN = ["payload appeared", "incidents missing"];
const OVER = ["finished", "cancelled", "stopped", "interrupted"];

/** Return the page. */
export async function verification(place, signal) {
  const path = deploymentPath(place);
  const deployment = await read(path, signal);
  const isThere = await has("/verifications");
  const part = h("div", {});
  if (isThere) await new Page(path, place.query.get("name"), part, signal).begin();
  return {
    title: `Verification of ${deployment.run}`,
    short: "Verification",
    crumbs: crumbsOf(deployment),
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Verification of ", told(deployment.run)), await tabs(deployment, "verification")),
      isThere ? part : section("Ten steps",
        h("p", { class: "quiet" }, "This service runs no verifications. The same ten steps run on your own machine, beside the chain or a node, by ", h("code", {}, "cmfl audit"), "."), stepsTable(null, [])),
    ],
  };
}

/** What the page shows, and how it changes while it is open. */
class Page {
  constructor(path, name, part, signal) {
    Object.assign(this, { path, name, part, signal });
    this.standing = h("div", {});
    this.before = h("div", {});
    this.controls = h("div", {});
    fill(part, this.controls, this.standing, this.before);
  }

  async begin() {
    await this.list();
    const shown = this.all.find((one) => one.verification === this.name) ?? this.all[0] ?? null;
    await this.show(shown);
    this.control();
  }

  async list() {
    const answer = await read(`${this.path}/verifications`, this.signal);
    [this.all, this.permission, this.bounds, this.unreadable] = [answer.verifications, answer.permission, answer.bounds, answer.unreadable];
    fill(this.before, earlier(this.path, this.all, this.unreadable));
  }

  /** Show a verification, and follow it while it goes on. */
  async show(one) {
    this.shown = one;
    const report = one?.report ? await read(one.links.report, this.signal).catch(() => null) : null;
    fill(this.standing, one ? standing(this.path, one, report) : nothing());
    if (one && !OVER.includes(one.state)) this.follow(one);
  }

  follow(one) {
    this.watching?.abort();
    this.watching = new AbortController();
    follow(one.links.events, (now) => {
      this.shown = now;
      if (!OVER.includes(now.state)) {
        fill(this.standing, standing(this.path, now, null));
        return false;
      }
      this.end(now);
      return true;
    }, AbortSignal.any([this.signal, this.watching.signal]));
  }

  async end(now) {
    await this.list();
    await this.show(now);
    const hadFocus = this.controls.contains(document.activeElement);
    this.control();
    if (hadFocus) this.controls.querySelector("button")?.focus();
    say(lineOf(now));
  }

  control() {
    const isRunning = this.shown !== null && !OVER.includes(this.shown.state);
    const allowed = this.permission === "granted";
    fill(this.controls, section("Verify this run",
      h("p", { class: "quiet" }, "The service repeats every decision from the chain and the files, in a process of its own. If you do not trust it, run the same ten steps on another machine, beside the chain or a node, by ", h("code", {}, "cmfl audit"), "."),
      allowed ? null : h("p", { class: "verdict open" }, wordFor(PERMISSIONS, this.permission)),
      this.permission === "token_needed" ? tokenForm(() => this.begin()) : null,
      allowed && isRunning ? this.cancelling() : null,
      allowed && !isRunning ? this.beginning() : null,
      h("p", { class: "quiet" }, `It may take ${whole(Math.round(this.bounds.memory_bytes / 2 ** 20))} MiB and ${whole(this.bounds.seconds)} s; ${counted(this.bounds.kept, "report")} are kept.`)));
  }

  beginning() {
    const passed = this.all.filter((one) => one.verdict?.outcome === "passed");
    const since = h("select", { id: "since" }, h("option", { value: "" }, "nothing: audit the whole run"),
      ...passed.map((one) => h("option", { value: one.verification }, `that of ${moment(one.ended_at)}, rounds 1 to ${one.verdict.rounds}`)));
    const strict = h("input", { id: "strict", type: "checkbox" });
    const form = h("form", { class: "filters" },
      h("label", { for: "since" }, "Build on", since),
      h("label", { for: "strict", class: "tick" }, strict, "Strict: remarks leave it open"),
      h("button", { type: "submit" }, "Verify"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.act("POST", `${this.path}/verifications`, { strict: strict.checked, since: since.value || null }, "The verification has begun.");
    });
    return form;
  }

  cancelling() {
    const cancel = h("button", { type: "button" }, "Cancel");
    cancel.addEventListener("click", () => {
      cancel.disabled = true;
      this.act("DELETE", this.shown.links.self, undefined, "It is being cancelled.");
    });
    return h("p", {}, cancel);
  }

  async act(method, path, body, done) {
    try {
      const one = await send(method, path, body, this.signal);
      say(done);
      if (method === "POST") {
        await this.list();
        await this.show(one);
        this.control();
        this.controls.querySelector("button:not(.copy)")?.focus();
      }
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      await this.begin();
      this.controls.append(h("p", { class: "verdict bad", role: "alert" }, told(error.title), ": ", told(error.message)));
    }
  }
}

const nothing = () => section("Ten steps", h("p", {}, "None has been run here yet."), stepsTable(null, []));

function standing(path, one, report) {
  const steps = one.progress?.steps ?? [];
  const [mark, kind] = one.verdict ? MARK[one.verdict.outcome] : ["…", "open"];
  return [
    section(OVER.includes(one.state) ? "Verdict" : "As it goes on",
      h("p", { class: `verdict ${kind}`, "data-state": one.state, "data-outcome": one.verdict?.outcome ?? "" },
        h("span", { class: "mark", "aria-hidden": "true" }, one.verdict ? mark : OVER.includes(one.state) ? "–" : mark), " ", lineOf(one)),
      report ? reasons(report) : null,
      one.verdict?.named.length ? h("p", {}, "Contradictions name ", counted(one.verdict.named.length, "client"), ": ", ...clientLinks(path, one.verdict.named), ".") : null,
      report ? caught(path, report.findings) : null,
      one.progress && !OVER.includes(one.state) ? h("progress", { max: Math.max(1, one.progress.total), value: one.progress.done, "aria-label": "rounds seen by all steps" }) : null,
      one.progress ? h("p", { class: "quiet" }, `${whole(one.progress.done)} of ${counted(one.progress.total, "round")} seen.`) : null,
      stepsTable(report, steps, one.verdict !== null),
      about(one)),
    report ? findings(path, report) : null,
  ];
}

/** Return how a verification stands, as one sentence. */
function lineOf({ state, why, verdict }) {
  if (!verdict) return why ? `${wordFor(VERIFICATION_STATES, state)}: ${wordFor(WHY_NO_VERDICT, why)}` : wordFor(VERIFICATION_STATES, state);
  if (verdict.outcome === "failed") return "Failed: what is recorded contradicts itself or the rules.";
  if (verdict.outcome === "incomplete") return "Incomplete: nothing contradicts, but not everything could be checked. This is neither a pass nor a failure.";
  return verdict.whole ? `Passed: all ten steps hold for all ${verdict.rounds} rounds.` : `Passed: all ten steps hold, on an earlier verification that this one trusts for its rounds.`;
}

function stepsTable(report, steps, isOver = false) {
  const rows = STEPS.map((title, place) => {
    const step = steps[place] ?? null;
    const [mark, kind, word] = stepMark(step, isOver);
    const said = report?.steps?.[place] ?? null;
    return h("tr", { class: `check ${kind}`, "data-step": place + 1, "data-outcome": step?.outcome ?? "" },
      h("td", { class: "number" }, String(place + 1)),
      h("td", { class: "mark" }, h("span", { "aria-hidden": "true" }, mark), h("span", { class: "hidden" }, word)),
      h("th", { scope: "row" }, title),
      h("td", { class: "wide" }, ...evidence(step, said)));
  });
  return table("The ten steps", [["step", "number"], [unseen("outcome"), "mark"], ["what it checks", "text", "row"], ["what it found", "wide"]], rows);
}

function stepMark(step, isOver) {
  if (step === null) return ["", "", "has not begun"];
  if (step.outcome === "passed") return ["✓", "matches", "passed"];
  if (step.outcome === "failed") return ["✗", "differs", "failed"];
  if (step.outcome !== null) return ["?", "open", "could not be checked"];
  return isOver ? ["–", "", "has no verdict"] : ["…", "", "goes on; nothing speaks against it so far"];
}

function evidence(step, said) {
  if (step === null) return [];
  const found = said?.contradiction ? [told(said.contradiction.sentence)] : [];
  if (step.contradictions > found.length) found.push(h("span", { class: "quiet" }, ` ${counted(step.contradictions, "contradiction")} in all`));
  const missing = (said?.missing ?? []).slice(0, 5).map((one) => h("div", {}, "not checkable: ", told(one.sentence)));
  if (step.missing_count > missing.length) missing.push(h("div", { class: "quiet" }, `${counted(step.missing_count, "thing")} could not be checked`));
  return [...found, ...missing];
}

/** Return why it is no pass, step by step: on a phone the table's last column is out of sight. */
function reasons(report) {
  const said = report.steps.flatMap(({ number, contradiction, missing }) => {
    const reason = contradiction ?? missing[0];
    return reason ? [[number, reason.sentence]] : [];
  });
  if (!said.length) return null;
  return h("ul", { class: "remarks", id: "reasons" }, ...said.map(([number, sentence]) =>
    h("li", {}, `step ${number}, ${STEPS[number - 1]}: `, told(sentence))));
}

/** Return who was caught lying, with proof: what a reader looks for first, also under a pass. */
function caught(path, findings) {
  const deeds = new Map();
  for (const { kind, round, clients } of findings.filter((one) => one.proven && MISDEEDS.includes(one.kind))) {
    for (const client of clients) {
      const rounds = deeds.get(`${client} ${kind}`)?.rounds ?? new Set();
      deeds.set(`${client} ${kind}`, { client, kind, rounds: round === null ? rounds : rounds.add(round) });
    }
  }
  if (!deeds.size) return null;
  const sorted = [...deeds.values()].sort((one, other) => one.client - other.client).slice(0, MOST_FINDINGS);
  return [
    h("p", {}, "Caught, with proof:"),
    h("ul", { class: "remarks", id: "caught" }, ...sorted.map(({ client, kind, rounds }) =>
      h("li", {}, clientLink(path, client), ": ", told(kind), rounds.size ? ` in round${rounds.size > 1 ? "s" : ""} ${listed([...rounds].map(String))}` : ""))),
  ];
}

function findings(path, report) {
  const parts = [
    ["Who was caught at what, or failed to deliver", report.findings.filter((one) => !UNKNOWN.includes(one.kind))],
    ["What nobody can tell true or false any more", report.findings.filter((one) => UNKNOWN.includes(one.kind))],
  ];
  return parts.filter(([, found]) => found.length).map(([title, found]) => section(title,
    table(title, [["round", "number"], ["client"], ["what"], ["in words", "wide"], ["proven"], ["evidence"]], found.slice(0, MOST_FINDINGS).map((one) =>
      h("tr", { "data-kind": one.kind },
        h("td", { class: "number" }, one.round === null ? "–" : roundLink(path, one.round, String(one.round))),
        h("td", {}, one.clients.length ? clientLinks(path, one.clients) : "the run"),
        h("td", {}, told(one.kind)),
        h("td", { class: "wide" }, told(one.sentence)),
        h("td", {}, one.proven ? badge(MISDEEDS.includes(one.kind) ? "bad" : "", "proven") : "not proven"),
        h("td", {}, ...one.evidence.slice(0, 2).map((hex) => h("div", {}, digest(hex, "evidence"))))))),
    found.length > MOST_FINDINGS ? h("p", {}, `${counted(found.length - MOST_FINDINGS, "more finding")} in the report.`) : null));
}

function about(one) {
  const { verdict, since, report } = one;
  return [
    facts([
      ["asked for", moment(one.asked_at)],
      one.ended && ["ended", moment(one.ended_at)],
      verdict && ["as of block", whole(verdict.block), " ", digest(verdict.block_hash, "block")],
      verdict && ["head", digest(verdict.head, "head")],
      verdict && ["head to keep for the next audit", verdict.final_head ? digest(verdict.final_head, "head to keep") : "none: nothing is known to be final"],
      verdict && verdict.remarks > 0 && ["remarks", whole(verdict.remarks)],
      one.strict && ["strict", "yes"],
      since && ["builds on", `rounds 1 to ${since.rounds}, head `, digest(since.head, "head of the earlier one")],
      report && ["sha256 of the report", digest(report.sha256, "report")],
    ]),
    report ? h("p", {}, download(one.links.report, `audit-${one.verification}.json`, "Download the report", { class: "action" })) : null,
  ];
}

function earlier(path, all, unreadable) {
  if (!all.length && !unreadable) return null;
  const rows = all.map((one) => [
    h("a", { href: runLink(path, "/verification", { name: one.verification }) }, moment(one.asked_at)),
    one.verdict ? badge(MARK[one.verdict.outcome][1], one.verdict.outcome) : badge("", wordFor(VERIFICATION_STATES, one.state)),
    one.verdict ? whole(one.verdict.rounds) : "–",
    one.since ? `rounds 1 to ${one.since.rounds} of an earlier one` : "the whole run",
    one.verdict?.named.length ? `names ${listed(one.verdict.named.map(String))}` : "",
  ]);
  return section("Verifications so far",
    table("Verifications so far", [["asked for", "text", "row"], ["verdict"], ["rounds", "number"], ["builds on", "wide"], ["contradictions", "wide"]], rows),
    unreadable ? h("p", {}, `${counted(unreadable, "file")} beside the reports cannot be read.`) : null);
}
