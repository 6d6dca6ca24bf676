// Audits that the service runs: start, verdict, ten steps and findings.

import { download } from "../downloads.js";
import { fill, h, told } from "../dom.js";
import { counted, listed, moment, whole } from "../format.js";
import { badge, digest, facts, say, section, table, unseen } from "../parts.js";
import { deploymentPath, runLink } from "../places.js";
import { Refused, has, read, send } from "../rest.js";
import { clientLink, clientLinks, crumbsOf, roundLink, tabs } from "../run.js";
import { tokenForm } from "../token.js";
import { PERMISSIONS, STEPS, WHY_NO_VERDICT, wordFor } from "../words.js";

const MOST_FINDINGS = 100;
const MARK = { passed: ["✓", "good"], failed: ["✗", "bad"], incomplete: ["?", "open"], "not checkable": ["?", "open"] };
const MISDEEDS = ["false scores", "two vectors", "wrong proposal", "equivocation", "ban"];
const UNKNOWN = ["payload appeared", "incidents missing"];
const POLL_MS = 1_000;

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
        h("p", { class: "quiet" }, "This service does not run verifications. To run the same ten steps on your machine, with the chain or a node, use ", h("code", {}, "cmfl audit"), "."), stepsTable(null, [])),
    ],
  };
}

/** The content of the page, and its updates. */
class Page {
  constructor(path, name, part, signal) {
    Object.assign(this, { path, name, signal });
    this.controls = h("div", {});
    this.shown = h("div", {});
    this.before = h("div", {});
    fill(part, this.controls, this.shown, this.before);
  }

  /** Show the chosen or newest verification, and look again while it runs. */
  async begin() {
    const { verifications: all, permission } = await read(`${this.path}/verifications`, this.signal);
    const one = all.find(({ verification: name }) => name === this.name) ?? all[0] ?? null;
    const report = one?.state === "finished" ? await read(one.links.report, this.signal).catch(() => null) : null;
    fill(this.shown, one ? standing(this.path, one, report) : section("Ten steps", h("p", {}, "No verification has been run here yet."), stepsTable(null)));
    fill(this.before, earlier(this.path, all));
    this.control(permission, all.some(({ state }) => state === "running"));
    if (one?.state === "running") setTimeout(() => this.signal.aborted || this.begin().catch(() => {}), POLL_MS);
    else if (this.isAwaited) say(lineOf(one, report));
    this.isAwaited = one?.state === "running";
  }

  control(permission, isRunning) {
    const key = `${permission} ${isRunning}`;
    if (key === this.key) return;
    this.key = key;
    const hadFocus = this.controls.contains(document.activeElement);
    const allowed = permission === "granted";
    const strict = h("input", { id: "strict", type: "checkbox" });
    const form = h("form", { class: "filters" },
      h("label", { for: "strict", class: "tick" }, strict, "Strict: remarks prevent a pass"),
      h("button", { type: "submit", disabled: isRunning }, "Verify"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.start(strict.checked);
    });
    fill(this.controls, section("Verify this run",
      h("p", { class: "quiet" }, "The service recomputes every decision from the chain and the files. If you do not trust the service, run the same ten steps on your machine, with the chain or a node: ", h("code", {}, "cmfl audit"), "."),
      allowed ? form : h("p", { class: "verdict open" }, wordFor(PERMISSIONS, permission)),
      permission === "token_needed" ? tokenForm(() => {
        this.key = null;
        this.begin();
      }) : null));
    if (hadFocus) this.controls.querySelector("button")?.focus();
  }

  async start(strict) {
    let refusal = null;
    try {
      this.name = (await send("POST", `${this.path}/verifications`, { strict }, this.signal)).verification;
      say("The verification is running.");
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refusal = h("p", { class: "verdict bad", role: "alert" }, told(error.title), ": ", told(error.message));
    }
    this.key = null;
    await this.begin();
    if (refusal) this.controls.append(refusal);
  }
}

function standing(path, one, report) {
  const [mark, kind] = MARK[one.outcome] ?? [one.state === "running" ? "…" : "–", "open"];
  const named = [...new Set(report?.steps.flatMap(({ contradiction }) => contradiction?.clients ?? []))].sort((a, b) => a - b);
  return [
    section("Verdict",
      h("p", { class: `verdict ${kind}`, "data-state": one.state, "data-outcome": one.outcome ?? "" },
        h("span", { class: "mark", "aria-hidden": "true" }, mark), " ", lineOf(one, report)),
      report ? reasons(report) : null,
      named.length ? h("p", {}, "Contradictions involve ", counted(named.length, "client"), ": ", ...clientLinks(path, named), ".") : null,
      report ? caught(path, report.findings) : null,
      stepsTable(report),
      about(one, report)),
    report ? findings(path, report) : null,
  ];
}

/** Return the state of a verification, as one sentence. */
function lineOf({ state, why, outcome }, report) {
  if (state === "running") return "Running. The verdict appears at the end.";
  if (state === "stopped") return `No verdict: ${wordFor(WHY_NO_VERDICT, why)}`;
  if (outcome === "failed") return "Failed: the recorded data contradict each other or the rules.";
  if (outcome === "incomplete") return "Incomplete: no contradiction was found, but some steps could not be checked. This is neither a pass nor a failure.";
  return `Passed: all ten steps hold${report ? ` for all ${report.rounds} rounds` : ""}.`;
}

function stepsTable(report) {
  const rows = STEPS.map((title, place) => {
    const step = report?.steps[place] ?? null;
    const [mark, kind, word] = stepMark(step);
    return h("tr", { class: `check ${kind}`, "data-step": place + 1, "data-outcome": step?.outcome ?? "" },
      h("td", { class: "number" }, String(place + 1)),
      h("td", { class: "mark" }, h("span", { "aria-hidden": "true" }, mark), h("span", { class: "hidden" }, word)),
      h("th", { scope: "row" }, title),
      h("td", { class: "wide" }, ...evidence(step)));
  });
  return table("The ten steps", [["step", "number"], [unseen("outcome"), "mark"], ["check", "text", "row"], ["result", "wide"]], rows);
}

function stepMark(step) {
  if (step === null) return ["", "", "no verdict"];
  if (step.outcome === "passed") return ["✓", "matches", "passed"];
  return step.outcome === "failed" ? ["✗", "differs", "failed"] : ["?", "open", "could not be checked"];
}

function evidence(step) {
  if (step === null) return [];
  const found = step.contradiction ? [told(step.contradiction.sentence)] : [];
  if (step.contradictions > found.length) found.push(h("span", { class: "quiet" }, ` ${counted(step.contradictions, "contradiction")} in all`));
  const missing = step.missing.slice(0, 5).map((one) => h("div", {}, "not checkable: ", told(one.sentence)));
  if (step.missing_count > missing.length) missing.push(h("div", { class: "quiet" }, `${counted(step.missing_count, "item")} could not be checked`));
  return [...found, ...missing];
}

/** Return the reasons for a missing pass, step by step: a phone does not show the table's last column. */
function reasons(report) {
  const said = report.steps.flatMap(({ number, contradiction, missing }) => {
    const reason = contradiction ?? missing[0];
    return reason ? [[number, reason.sentence]] : [];
  });
  if (!said.length) return null;
  return h("ul", { class: "remarks", id: "reasons" }, ...said.map(([number, sentence]) =>
    h("li", {}, `step ${number}, ${STEPS[number - 1]}: `, told(sentence))));
}

/** Return the clients with proven misbehaviour: readers look for these first, also after a pass. */
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
    h("p", {}, "Proven misbehaviour:"),
    h("ul", { class: "remarks", id: "caught" }, ...sorted.map(({ client, kind, rounds }) =>
      h("li", {}, clientLink(path, client), ": ", told(kind), rounds.size ? ` in round${rounds.size > 1 ? "s" : ""} ${listed([...rounds].map(String))}` : ""))),
  ];
}

function findings(path, report) {
  const parts = [
    ["Misbehaviour and missing contributions", report.findings.filter((one) => !UNKNOWN.includes(one.kind))],
    ["Claims that can no longer be checked", report.findings.filter((one) => UNKNOWN.includes(one.kind))],
  ];
  return parts.filter(([, found]) => found.length).map(([title, found]) => section(title,
    table(title, [["round", "number"], ["client"], ["kind"], ["explanation", "wide"], ["proven"], ["evidence"]], found.slice(0, MOST_FINDINGS).map((one) =>
      h("tr", { "data-kind": one.kind },
        h("td", { class: "number" }, one.round === null ? "–" : roundLink(path, one.round, String(one.round))),
        h("td", {}, one.clients.length ? clientLinks(path, one.clients) : "the run"),
        h("td", {}, told(one.kind)),
        h("td", { class: "wide" }, told(one.sentence)),
        h("td", {}, one.proven ? badge(MISDEEDS.includes(one.kind) ? "bad" : "", "proven") : "not proven"),
        h("td", {}, ...one.evidence.slice(0, 2).map((hex) => h("div", {}, digest(hex, "evidence"))))))),
    found.length > MOST_FINDINGS ? h("p", {}, `${counted(found.length - MOST_FINDINGS, "more finding")} in the report.`) : null));
}

function about(one, report) {
  const of = report?.deployment;
  return [
    facts([
      ["started", moment(one.begun_at)],
      one.ended_at && ["ended", moment(one.ended_at)],
      of && ["as of block", whole(of.head_block), " ", digest(of.head_block_hash, "block")],
      of && ["head", digest(of.head, "head")],
      of && ["head to keep for the next audit", of.final_head ? digest(of.final_head, "head to keep") : "none: no block is known to be final"],
      report?.remarks > 0 && ["remarks", whole(report.remarks)],
      one.strict && ["strict", "yes"],
      one.report_sha256 && ["sha256 of the report", digest(one.report_sha256, "report")],
    ]),
    report ? h("p", {}, download(one.links.report, `audit-${one.verification}.json`, "Download the report", { class: "action" })) : null,
  ];
}

function earlier(path, all) {
  if (!all.length) return null;
  const rows = all.map((one) => [
    h("a", { href: runLink(path, "/verification", { name: one.verification }) }, moment(one.begun_at)),
    badge(MARK[one.outcome]?.[1] ?? "", one.outcome ?? one.state),
  ]);
  return section("Verifications so far", table("Verifications so far", [["started", "text", "row"], ["verdict"]], rows));
}
