// All rounds of a run, page by page, with filters in the address.

import { h, told } from "../dom.js";
import { whole } from "../format.js";
import { digest, section, table } from "../parts.js";
import { deploymentPath, runLink } from "../places.js";
import { asking, read } from "../rest.js";
import { crumbsOf, endedText, roundLink, statusBadge, tabs, viewsText } from "../run.js";

const LIMIT = 50;
const KEPT = ["status", "client", "role", "view_min", "order"];
const ROLES = {
  any: "took part", trained: "trained", accepted: "was accepted", not_accepted: "was not accepted", dropped_out: "dropped out",
  member: "was a member", served: "served", refused: "had its scores refused", voted: "voted",
};

/** Return the page. */
export async function rounds(place, signal) {
  const path = deploymentPath(place);
  const asked = Object.fromEntries(KEPT.map((name) => [name, place.query.get(name)]));
  const cursor = place.query.get("cursor");
  const [deployment, list] = await Promise.all([
    read(path, signal),
    read(asking(`${path}/rounds`, { ...asked, limit: LIMIT, cursor }), signal),
  ]);
  return {
    title: `Rounds of ${deployment.run}`,
    short: "Rounds",
    crumbs: crumbsOf(deployment),
    watched: cursor ? null : path,
    state: deployment.state,
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Rounds of ", told(deployment.run)), await tabs(deployment, "rounds")),
      filters(path, asked),
      section("Found", list.rounds.length ? listed(path, list.rounds) : h("p", {}, "No round on this page matches the filters."),
        h("p", { class: "pager" },
          cursor ? h("a", { href: runLink(path, "/rounds", asked) }, "first page") : null,
          list.next_cursor ? h("a", { href: runLink(path, "/rounds", { ...asked, cursor: list.next_cursor }) }, "next page →") : null)),
    ],
  };
}

function listed(path, found) {
  const rows = found.map((round) => [
    roundLink(path, round.round, whole(round.round)),
    statusBadge(round.status),
    round.status === "decided" ? whole(round.ranked) : "–",
    round.status === "decided" ? whole(round.accepted) : "–",
    viewsText(round.views),
    endedText(round.ended),
    digest(round.model, "model"),
  ]);
  return table("Rounds", [["round", "number", "row"], ["state"], ["ranked", "number"], ["accepted", "number"], ["view of the votes", "number"], ["ended"], ["new model"]], rows);
}

function filters(path, asked) {
  const choice = (name, label, options) => h("label", {}, label, h("select", { name, id: `filter-${name}` },
    ...options.map(([value, text]) => h("option", { value, selected: (asked[name] ?? "") === value }, text))));
  const form = h("form", { class: "filters card", "aria-label": "Filter the rounds" },
    choice("status", "state", [["", "any"], ["decided", "decided"], ["abandoned", "abandoned"], ["open", "open"]]),
    h("label", {}, "client", h("input", { name: "client", inputmode: "numeric", size: 6, pattern: "0|[1-9][0-9]{0,9}", value: asked.client })),
    choice("role", "that client", [["", "took part"], ...Object.entries(ROLES).slice(1)]),
    choice("view_min", "decided in", [["", "any view"], ["1", "view 2 or later"], ["2", "view 3 or later"]]),
    choice("order", "order", [["", "newest first"], ["oldest", "oldest first"]]),
    h("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    if (!values.client) values.role = "";
    location.hash = runLink(path, "/rounds", values);
  });
  return form;
}
