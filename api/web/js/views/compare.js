// Two runs side by side: their settings and results.

import { curves } from "../charts/curves.js";
import { h, told } from "../dom.js";
import { percent, whole } from "../format.js";
import { digest, more, section, table } from "../parts.js";
import { ROOT, runLink, withQuery } from "../places.js";
import { has, read, readIfThere, readList } from "../rest.js";
import { settings } from "../run.js";

const MOST = 200;
const PATH = /^\/v1\/chains\/(?:0|[1-9][0-9]{0,77})-[0-9a-f]{8}\/deployments\/0x[0-9a-fA-F]{40}$/;

/** Return the page. */
export async function compare(place, signal) {
  const status = await read(`${ROOT}/v1/status`, signal);
  const asked = ["left", "right"].map((side) => place.query.get(side)).map((path) => (path?.startsWith(ROOT) && PATH.test(path.slice(ROOT.length)) ? path : null));
  const sides = await Promise.all(asked.map((path) => (path ? side(path, signal) : null)));
  return {
    title: "Compare two runs",
    crumbs: [],
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Compare two runs")),
      chooser(status.deployments, asked),
      ...(sides[0] && sides[1] ? compared(sides) : [h("p", { class: "card" }, "Choose a run on each side.")]),
    ],
  };
}

async function side(path, signal) {
  const isTold = await has("/series");
  const [deployment, series, list] = await Promise.all([
    read(path, signal),
    isTold ? readIfThere(`${path}/series`, signal) : null,
    isTold ? { found: [] } : readList(`${path}/rounds`, "rounds", { order: "oldest", limit: 100 }, MOST, signal),
  ]);
  return { deployment, points: series ?? pointsOf(list.found) };
}

function pointsOf(rounds) {
  return {
    claimed: null,
    round: rounds.map((one) => one.round),
    status: rounds.map((one) => one.status),
    accepted: rounds.map((one) => (one.status === "decided" ? one.accepted : null)),
    views: rounds.map((one) => one.views),
  };
}

function chooser(deployments, asked) {
  const choice = (name, label, chosen) => h("label", {}, label, h("select", { name, id: `choose-${name}` },
    h("option", { value: "" }, "choose a run"),
    ...deployments.map((one) => h("option", { value: one.links.self, selected: one.links.self === chosen }, told(one.run)))));
  const form = h("form", { class: "filters card", "aria-label": "Runs to compare" },
    choice("left", "left", asked[0]), choice("right", "right", asked[1]), h("button", { type: "submit" }, "Compare"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = withQuery("#/compare", Object.fromEntries(new FormData(form)));
  });
  return form;
}

function compared(sides) {
  const names = sides.map(({ deployment }) => h("a", { href: runLink(deployment.links.self) }, told(deployment.run)));
  return [
    outcome(sides, names),
    differences(sides),
    curve(sides, "accepted", "Accepted updates", ({ points }) => points.accepted),
    sides.every(({ points }) => points.claimed)
      ? curve(sides, "accuracy", "Accuracy, claimed by each run", ({ points }) => points.claimed.accuracy, percentages)
      : null,
  ];
}

const percentages = { format: (value) => `${Math.round(100 * value)}%`, range: () => [0, 1] };

function outcome(sides, names) {
  const count = (points, wanted) => whole(points.status.filter((status) => status === wanted).length);
  const last = (values) => values?.findLast((value) => value !== null) ?? null;
  const share = (value) => (value === null ? "–" : percent(value));
  const line = (name, tell) => [name, ...sides.map(tell)];
  return section("Results", table("Results of each run", [["value", "text", "row"], [names[0], "number"], [names[1], "number"]], [
    line("rounds", ({ deployment }) => `${whole(deployment.state.round)} of ${whole(deployment.contract.rounds)}`),
    line("decided", ({ points }) => count(points, "decided")),
    line("abandoned", ({ points }) => count(points, "abandoned")),
    line("votes with several views", ({ points }) => whole(points.views.flat().filter((view) => view > 0).length)),
    line("accepted updates", ({ points }) => whole(points.accepted.reduce((sum, one) => sum + (one ?? 0), 0))),
    line("accuracy, claimed", ({ points }) => share(last(points.claimed?.accuracy))),
    line("floor", ({ points }) => share(last(points.claimed?.floor))),
    line("head", ({ deployment }) => digest(deployment.state.head, "head")),
  ]));
}

function differences(sides) {
  const [left, right] = sides.map(({ deployment }) => settings(deployment).map(([name, value]) => [name, text(value)]));
  const other = new Map(right);
  const all = left.map(([name, value]) => [name, value, other.get(name) ?? "–"]);
  const differing = all.filter(([, one, two]) => one !== two);
  const columns = [["setting", "text", "row"], ["left"], ["right"]];
  const listed = (caption, rows) => table(caption, columns, rows.map(([name, one, two]) => [name, told(one), told(two)]));
  return section("Settings that differ",
    differing.length ? listed("Settings that differ", differing) : h("p", {}, "The contract and the run document show the same settings for both runs."),
    more("settings", "All settings", listed("All settings", all)));
}

const text = (value) => (value instanceof Node ? value.textContent : String(value));

function curve(sides, name, title, values, options = {}) {
  const rounds = [...new Set(sides.flatMap(({ points }) => points.round))].sort((one, other) => one - other);
  const columns = sides.map((one) => {
    const found = new Map(one.points.round.map((round, place) => [round, values(one)[place]]));
    return rounds.map((round) => found.get(round) ?? null);
  });
  const label = (place) => `${["left", "right"][place]}: ${sides[place].deployment.run.slice(0, 40)}`;
  const series = columns.map((column, place) => ({ label: told(label(place)), values: column, colour: ["accent", "second"][place] }));
  const shown = (value) => (value === null ? "–" : options.format ? percent(value) : String(value));
  return section(title,
    curves(`${title} of both runs; the table below shows the same data`, rounds, series, options),
    more(name, "Show as a table", table(title, [["round", "number", "row"], ["left", "number"], ["right", "number"]],
      rounds.map((round, place) => [whole(round), shown(columns[0][place]), shown(columns[1][place])]))));
}
