// Values that a page recomputed, as ticks and crosses.

import { DIFFERS, MATCHES, OPEN, tally } from "./checks.js";
import { h } from "./dom.js";
import { counted } from "./format.js";
import { digest, more, section, table, unseen } from "./parts.js";
import { CHECKS } from "./words.js";

const MARK = { [MATCHES]: "✓", [DIFFERS]: "✗", [OPEN]: "–" };
const WORD = { [MATCHES]: "matches", [DIFFERS]: "differs", [OPEN]: "cannot be recomputed here" };

/** Return the results of checks: the ones that differ first and in full. */
export function checked(checks, title = "Recomputed in your browser") {
  if (!checks.length) return null;
  const { matches, differs, open } = tally(checks);
  const kind = differs ? "bad" : "good";
  const line = differs
    ? `${counted(differs, "value")} shown here ${differs === 1 ? "does" : "do"} not match the other data. Do not rely on this page.`
    : `${counted(matches, "value")} recomputed from the other data ${matches === 1 ? "matches" : "all match"}.`;
  return section(title,
    h("p", { class: `verdict ${kind}`, role: differs ? "alert" : null, "data-matches": matches, "data-differs": differs, "data-open": open },
      h("span", { class: "mark", "aria-hidden": "true" }, differs ? "✗" : "✓"), " ", line,
      open ? ` ${counted(open, "value")} cannot be recomputed here.` : null),
    differs ? listed("Values that differ", checks.filter((one) => one.outcome === DIFFERS)) : null,
    more("checks", "Every value", listed("Every recomputed value", checks)),
    h("p", { class: "quiet" }, "To check signatures, distances and the model, run ", h("code", {}, "cmfl audit"), "."));
}

function listed(caption, checks) {
  return table(caption, [[unseen("outcome"), "mark"], ["value", "text", "row"], ["shown"], ["recomputed"], ["meaning of a match", "wide"]], checks.map((one) =>
    h("tr", { class: `check ${one.outcome}`, "data-check": one.name },
      h("td", { class: "mark" }, h("span", { "aria-hidden": "true" }, MARK[one.outcome]), h("span", { class: "hidden" }, WORD[one.outcome])),
      h("th", { scope: "row" }, one.client === undefined ? CHECKS[one.name][0] : `${CHECKS[one.name][0]} ${one.client}`),
      h("td", {}, digest(one.expected, "shown value")),
      h("td", {}, one.computed === null ? WORD[OPEN] : digest(one.computed, "recomputed value")),
      h("td", { class: "wide" }, CHECKS[one.name][1]))));
}
