// A mark for each client in each round: clients downwards, rounds to the right.

import { h, s } from "../dom.js";

const CELL = 18;
const LEFT = 76;
const TOP = 22;
const ROOM = 1_120;
const WIDEST = 110;

/** The name of each mark; shape and colour have the same meaning. */
export const MARKS = {
  accepted: "accepted",
  not_accepted: "ranked, not accepted",
  dropped_out: "dropped out",
  undecided: "sampled, no decision",
  counted: "member, scores counted",
  refused: "member, scores refused",
  none: "member, no scores",
  unknown: "member, nothing recorded",
  empty_seat: "empty seat",
  banned: "banned in this round",
  attested_same: "same bits",
  attested_other: "other bits",
  attested_disputed: "auditors disagree",
  attested_none: "not attested",
};

/** Return the strip of some rounds.
 *
 * `columns` are round numbers; `rows` are `{label, cells}`, a cell `{mark, banned, href, title}`,
 * a text for each round, or null.
 */
export function strip(label, columns, rows) {
  const pitch = Math.max(CELL, Math.min(WIDEST, Math.floor((ROOM - LEFT) / columns.length)));
  const width = LEFT + pitch * columns.length + 4;
  const height = TOP + CELL * rows.length + 4;
  const chart = s("svg", { class: "strip", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height },
    ...columns.map((number, place) => columnLabel(number, place, columns.length, pitch)),
    ...rows.flatMap((row, place) => [
      s("text", { x: LEFT - 8, y: TOP + CELL * place + 13, class: "label end" }, row.label),
      s("line", { x1: LEFT, x2: width - 4, y1: TOP + CELL * place + 9, y2: TOP + CELL * place + 9, class: "lane" }),
      ...row.cells.map((cell, column) => cell && drawn(cell, LEFT + pitch * column + (pitch - CELL) / 2, TOP + CELL * place)),
    ]));
  chart.addEventListener("click", (event) => {
    const href = event.target.closest("[data-href]")?.dataset.href;
    if (href) location.hash = href;
  });
  return chart;
}

/** Return the meaning of the marks that are used. */
export function legend(marks) {
  const shown = Object.keys(MARKS).filter((mark) => marks.has(mark));
  return h("ul", { class: "legend" }, ...shown.map((mark) =>
    h("li", {}, s("svg", { width: 18, height: 18, viewBox: "0 0 18 18", "aria-hidden": "true" }, ...shape(mark, 0, 0)), MARKS[mark])));
}

function columnLabel(number, place, columns, pitch) {
  const every = pitch >= 24 ? 1 : columns > 30 ? 5 : 2;
  if (place % every && place !== columns - 1) return null;
  return s("text", { x: LEFT + pitch * place + pitch / 2, y: 14, class: "label middle" }, String(number));
}

function drawn(cell, x, y) {
  if (typeof cell !== "string") return marked(cell, x, y);
  return s("text", { x: x + CELL / 2, y: y + 13, class: "label middle small" }, cell);
}

function marked(cell, x, y) {
  return s("g", { class: "cell", "data-href": cell.href },
    s("title", {}, cell.title),
    s("rect", { x, y, width: CELL, height: CELL, class: "touch" }),
    ...shape(cell.mark, x, y),
    ...(cell.banned ? shape("banned", x, y) : []));
}

function shape(mark, x, y) {
  const square = (kind) => s("rect", { x: x + 3, y: y + 3, width: 12, height: 12, rx: 2, class: kind });
  const circle = (kind) => s("circle", { cx: x + 9, cy: y + 9, r: 6, class: kind });
  const slash = s("line", { x1: x + 4, y1: y + 14, x2: x + 14, y2: y + 4, class: "slash" });
  switch (mark) {
    case "accepted": return [square("m-accepted")];
    case "not_accepted": return [square("m-not-accepted")];
    case "dropped_out": return [square("m-dropped"), slash];
    case "undecided": return [square("m-open")];
    case "counted": return [circle("m-counted")];
    case "refused": return [circle("m-refused"), slash];
    case "none": return [circle("m-none")];
    case "empty_seat": return [circle("m-empty")];
    case "attested_same": return [square("m-same")];
    case "attested_other": return [square("m-refused"), slash, s("line", { x1: x + 4, y1: y + 4, x2: x + 14, y2: y + 14, class: "slash" })];
    case "attested_disputed": return [square("m-disputed"), s("path", { d: `M${x + 4} ${y + 14}L${x + 14} ${y + 4}V${y + 14}Z`, class: "m-disputed-half" })];
    case "attested_none": return [s("circle", { cx: x + 9, cy: y + 9, r: 2, class: "m-unattested" })];
    case "banned": return [s("rect", { x: x + 1, y: y + 1, width: 16, height: 16, rx: 3, class: "m-banned" })];
    default: return [circle("m-open")];
  }
}
