// A ranking as a table with a bar for each distance, and the cut-off as a line across it.

import { electsByLot } from "../digests.js";
import { h, s } from "../dom.js";
import { distance, percent, whole } from "../format.js";
import { across, badge, table, term, unseen } from "../parts.js";
import { runLink } from "../places.js";
import { clientLink } from "../run.js";
import { OUTCOMES } from "../words.js";

const WIDTH = 160;
const FAR_APART = 20;
const COLUMNS = 7;

/** Return the ranking of a decided round. */
export function ranking(path, round) {
  const updates = round.parts.updates.filter((update) => update.rank !== null).sort((one, other) => one.rank - other.rank);
  const weights = new Map(round.parts.aggregation.accepted.map((one) => [one.client, one.weight]));
  const next = new Map(round.parts.next_committee.map((one) => [one.client, one.place]));
  const limit = electsByLot(round.parts.aggregation) && updates[0]?.distance < 2 ? 2 : null;
  const length = scaleOf(updates.map((update) => update.distance), limit);
  const rows = [];
  updates.forEach((update, place) => {
    const before = updates[place - 1];
    if (before && (before.outcome === "accepted") !== (update.outcome === "accepted")) rows.push(cutOff(limit));
    rows.push(row(path, round, update, weights.get(update.client), next.get(update.client), length));
  });
  if (limit !== null && updates.length && updates.at(-1).outcome === "accepted") rows.push(cutOff(limit));
  return table("Ranking", [["rank", "number"], ["client", "text", "row"], [term("distance"), "number"], [unseen("distance as a bar"), "bar"], ["outcome"], [term("weight"), "number"], ["why and proof"]], rows);
}

function row(path, round, update, weight, place, length) {
  const isIn = update.outcome === "accepted";
  return h("tr", { class: isIn ? "is-in" : "is-out" },
    h("td", { class: "number" }, whole(update.rank)),
    h("th", { scope: "row" }, clientLink(path, update.client)),
    h("td", { class: "number" }, distance(update.distance)),
    h("td", { class: "bar" }, bar(length(update.distance), isIn)),
    h("td", {}, badge(isIn ? "good" : "plain", OUTCOMES[update.outcome]), " ",
      place === undefined ? null : badge("elected", `elected, place ${place}`)),
    h("td", { class: "number" }, weight ? percent(weight.value) : "–"),
    h("td", {}, h("a", { href: runLink(path, `/rounds/${round.round}/clients/${update.client}`), "aria-label": `Proof for client ${update.client}` }, "proof")));
}

const cutOff = (limit) => across(COLUMNS, term("cut-off"), limit === null ? "" : ` at a distance of ${distance(limit)}`);

const bar = (length, isIn) => s("svg", { width: WIDTH, height: 12, viewBox: `0 0 ${WIDTH} 12`, "aria-hidden": "true" },
  s("rect", { x: 0, y: 2, width: WIDTH, height: 8, rx: 3, class: "track" }),
  s("rect", { x: 0, y: 2, width: Math.max(2, length * WIDTH), height: 8, rx: 3, class: isIn ? "m-accepted" : "m-not-accepted-bar" }));

/** Return how long a bar is, of 1; by the logarithm where distances are far apart. */
function scaleOf(distances, limit) {
  const finite = [...distances, limit].filter((value) => value !== null && value > 0);
  const [least, most] = [Math.min(...finite), Math.max(...finite)];
  const isLogarithmic = most / least > FAR_APART;
  return (value) => {
    if (value === null) return 1;
    if (value <= 0) return 0;
    return isLogarithmic ? 0.1 + (0.9 * Math.log(value / least)) / Math.log(most / least) : value / most;
  };
}

