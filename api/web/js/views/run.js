// One run: its state, its curves, and the activity in its newest rounds.

import { curves } from "../charts/curves.js";
import { MARKS, legend, strip } from "../charts/strip.js";
import { h, told } from "../dom.js";
import { counted, percent, whole } from "../format.js";
import { badge, command, digest, facts, figures, more, section, table, term } from "../parts.js";
import { deploymentPath, runLink, withQuery } from "../places.js";
import { has, read, readIfThere, readList } from "../rest.js";
import { clientLink, isNoteworthy, remoteCommand, roundLink, settings, statusBadge, tabs, viewsText } from "../run.js";
import { STAGES, wordFor } from "../words.js";
import { misbehaviour } from "./misbehaviour.js";
import { training } from "./training.js";

const WINDOW = 40;
const PAGE = 20;
const MOST_CLIENTS = 200;

/** Return the page. */
export async function run(place, signal) {
  const path = deploymentPath(place);
  const until = place.query.get("until");
  const [deployment, recent, series] = await Promise.all([
    read(path, signal),
    readList(`${path}/rounds`, "rounds", { full: "true", limit: PAGE, until_block: until }, WINDOW, signal),
    readSeries(path, signal),
  ]);
  const shown = recent.found.reverse();
  const ended = shown.filter((round) => round.ended).map((round) => round.round);
  const points = series ?? pointsOf(shown);
  return {
    title: deployment.run,
    crumbs: [],
    watched: path,
    state: deployment.state,
    nodes: [
      await heading(deployment),
      standing(deployment, points),
      updatesChart(points),
      accuracyChart(series?.claimed ? points : null),
      activity(path, shown, recent.more, until),
      await training(path, ended, signal),
      await misbehaviour(path, place.query, signal),
      noteworthy(path, points),
      section("Settings", h("p", { class: "quiet" }, "Settings are fixed when the run begins. The contract stores the settings that it enforces."),
        facts(settings(deployment)), digests(deployment)),
      checking(deployment, points),
      h("p", {}, comparing(path)),
    ],
  };
}

async function heading(deployment) {
  const { stage } = deployment.state;
  return h("header", { class: "head" },
    h("h1", {}, told(deployment.run), " ", badge(`stage-${stage}`, wordFor(STAGES, stage))),
    h("p", { class: "quiet" }, "contract ", digest(deployment.address, "address")),
    await tabs(deployment, "run"));
}

function standing(deployment, points) {
  const decided = points.status.filter((status) => status === "decided").length;
  const abandoned = points.status.filter((status) => status === "abandoned").length;
  const accuracy = points.claimed?.accuracy.findLast((value) => value !== null) ?? null;
  const floor = points.claimed?.floor.findLast((value) => value !== null) ?? null;
  return figures([
    [term("round"), whole(deployment.state.round), `of ${whole(deployment.contract.rounds)}`],
    [term("decided"), whole(decided), points.isPart ? "of the rounds shown" : null],
    [term("abandoned"), whole(abandoned), points.isPart ? "of the rounds shown" : null],
    ["clients", whole(deployment.sizes.clients), `${deployment.sizes.trainers} trainers and ${deployment.sizes.members} members per round`],
    accuracy !== null && [["accuracy, ", term("claimed")], percent(accuracy), floor === null ? null : `floor ${percent(floor)}`],
  ]);
}

function updatesChart(points) {
  if (!points.round.length) return h("p", { class: "card" }, "No round has opened yet.");
  const series = [
    { label: "ranked", values: points.ranked, colour: "pale", bars: true },
    { label: "accepted", values: points.accepted, colour: "accent", bars: true },
  ];
  const rows = points.round.map((round, place) => [
    whole(round), points.status[place], String(points.ranked[place] ?? "–"), String(points.accepted[place] ?? "–"), viewsText(points.views[place]),
  ]);
  return section("Updates in each round",
    curves("Bars: updates ranked and accepted in each round; the table below shows the same data", points.round, series),
    more("updates", "Show as a table", table("Updates in each round",
      [["round", "number", "row"], ["state"], ["ranked", "number"], ["accepted", "number"], ["view of the votes", "number"]], rows)));
}

function accuracyChart(points) {
  if (!points?.claimed.accuracy.some((value) => value !== null)) return null;
  const { accuracy, floor } = points.claimed;
  const series = [
    { label: "accuracy", values: accuracy, colour: "accent" },
    { label: "floor (most frequent class)", values: floor, colour: "quiet", dash: true },
  ];
  const shown = (value) => (value === null ? "–" : percent(value));
  return section("Accuracy",
    h("p", { class: "quiet" }, "Test accuracy, ", term("claimed"), " by the run's files. An audit does not verify it."),
    curves("Curve: accuracy and floor after each round; the table below shows the same data", points.round, series,
      { format: (value) => `${Math.round(100 * value)}%`, range: () => [0, 1] }),
    more("accuracy", "Show as a table", table("Accuracy after each round",
      [["round", "number", "row"], ["accuracy", "number"], ["floor", "number"]],
      points.round.map((round, place) => [whole(round), shown(accuracy[place]), shown(floor[place])]))));
}

function activity(path, shown, isMore, until) {
  if (!shown.length) return null;
  const parts = shown.map((round) => partsOf(path, round));
  const everybody = [...new Set(parts.flatMap((one) => [...one.keys()]))].sort((one, other) => one - other);
  const clients = everybody.slice(0, MOST_CLIENTS);
  const rows = clients.map((client) => ({ label: `client ${client}`, cells: parts.map((one) => one.get(client) ?? null) }));
  const views = { label: "in view", cells: shown.map((round) => (round.views ? viewsText(round.views).replaceAll(" ", "") : "–")) };
  const cells = rows.flatMap((row) => row.cells).filter(Boolean);
  const marks = new Set(cells.flatMap((cell) => (cell.banned ? [cell.mark, "banned"] : [cell.mark])));
  const label = `Activity in rounds ${shown[0].round} to ${shown.at(-1).round}; the table below shows the same data`;
  const columns = [["client", "number", "row"], ...shown.map((round) => [`${round.round}`, "text"])];
  const words = rows.map((row, place) => [
    clientLink(path, clients[place], String(clients[place])),
    ...row.cells.map((cell) => (cell ? MARKS[cell.mark] + (cell.banned ? `, ${MARKS.banned}` : "") : "")),
  ]);
  return section("Activity",
    h("p", { class: "quiet" }, `Rounds ${shown[0].round} to ${shown.at(-1).round}. Squares are trainers, circles are committee members. The first line shows the `, term("view"), ` that decided each vote. `,
      everybody.length > clients.length ? `Only the first ${MOST_CLIENTS} of ${whole(everybody.length)} clients are shown.` : null),
    h("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Activity, as a picture" },
      strip(label, shown.map((round) => round.round), [views, ...rows])),
    legend(marks),
    more("activity", "Show as a table", table("Activity by client and round", columns, words)),
    h("p", { class: "pager" },
      isMore && shown[0].ended ? h("a", { href: runLink(path, "", { until: shown[0].ended.number - 1 }) }, "← earlier rounds") : null,
      until ? h("a", { href: runLink(path) }, "newest rounds") : null));
}

/** Return each client's cell in one round. */
function partsOf(path, round) {
  const href = runLink(path, `/rounds/${round.round}`);
  const cell = (client, mark) => [client, {
    mark, href, banned: round.banned.includes(client), title: `client ${client}, round ${round.round}: ${MARKS[mark]}`,
  }];
  return new Map([
    ...round.parts.updates.map((update) => cell(update.client, update.outcome)),
    ...round.parts.committee.map((member) => cell(member.client, member.empty_seat ? "empty_seat" : member.scores)),
  ]);
}

function noteworthy(path, points) {
  const found = points.round
    .map((round, place) => ({ round, status: points.status[place], views: points.views[place] }))
    .filter(isNoteworthy);
  if (!found.length) return null;
  const shown = found.slice(-50).reverse();
  return section("Rounds with problems",
    h("p", { class: "quiet" }, `${counted(found.length, "round")} abandoned, or decided only after the first `, term("view"), "."),
    table("Rounds with problems", [["round", "number", "row"], ["state"], ["aggregation decided in view", "number"], ["election decided in view", "number"]],
      shown.map((one) => [roundLink(path, one.round, String(one.round)), statusBadge(one.status), view(one, 0), view(one, 1)])));
}

const view = (one, phase) => (one.views ? String(one.views[phase] + 1) : "–");

function digests({ config, contract, state, transaction }) {
  return more("digests", "Digests", facts([
    ["run document", digest(config)],
    ["first model", digest(contract.initial_model)],
    ["registry", digest(contract.registry)],
    ["model now", digest(state.model)],
    [term("head"), digest(state.head)],
    [term("seed"), digest(state.seed)],
    ["deployed by transaction", digest(transaction)],
  ]));
}

const comparing = (path) => h("a", { class: "action", href: withQuery("#/compare", { left: path }) }, "Compare with another run");

/** Return the command that checks the newest decided round, and a pointer to a whole audit. */
function checking(deployment, points) {
  const newest = points.round.findLast((_, place) => points.status[place] === "decided");
  return section("Check it on your machine",
    newest === undefined ? null : [
      h("p", {}, `This command checks round ${whole(newest)} on your machine against the run's head:`),
      command(remoteCommand(`verify round ${newest}`, deployment)),
    ],
    h("p", {}, "An audit of the whole run reads the chain, in the run's home or from a node. See ", h("code", {}, "cmfl audit --help"), "."));
}

/** Return a run's values by round; null if the service does not have them. */
async function readSeries(path, signal) {
  return (await has("/series")) ? readIfThere(`${path}/series`, signal) : null;
}

/** Return the same columns from the rounds shown. */
function pointsOf(rounds) {
  return {
    isPart: true,
    claimed: null,
    round: rounds.map((round) => round.round),
    status: rounds.map((round) => round.status),
    ranked: rounds.map((round) => (round.status === "decided" ? round.ranked : null)),
    accepted: rounds.map((round) => (round.status === "decided" ? round.accepted : null)),
    views: rounds.map((round) => round.views),
  };
}
