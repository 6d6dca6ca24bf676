// Distances of updates as reported by members: one row per member, one column per update.

import { s } from "../dom.js";
import { distance } from "../format.js";

const CELL = 30;
const LEFT = 84;
const TOP = 40;
const SHADES = 9;

/** Return the heat map.
 *
 * `columns` are `{label, mark}`; `rows` are `{label, mark, values}`, a value a number or null. Shades
 * go by the logarithm between the smallest and the largest finite distance that is above zero.
 */
export function heat(label, columns, rows) {
  const width = LEFT + CELL * columns.length + 4;
  const height = TOP + CELL * rows.length + 4;
  const shade = shades(rows.flatMap((row) => row.values));
  return s("svg", { class: "heat", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}`, width, height },
    ...columns.map((column, place) =>
      s("text", { x: LEFT + CELL * place + CELL / 2, y: 30, class: `label middle ${column.mark ?? ""}` }, column.label)),
    s("text", { x: LEFT, y: 12, class: "label" }, "update of client"),
    ...rows.flatMap((row, line) => [
      s("text", { x: LEFT - 8, y: TOP + CELL * line + 19, class: `label end ${row.mark ?? ""}` }, row.label),
      ...row.values.map((value, place) => {
        const [x, y] = [LEFT + CELL * place, TOP + CELL * line];
        return s("g", {},
          s("title", {}, `${row.label}, client ${columns[place].label}: ${distance(value)}`),
          s("rect", { x: x + 1, y: y + 1, width: CELL - 2, height: CELL - 2, rx: 3, class: shade(value) }),
          value === null ? s("text", { x: x + CELL / 2, y: y + 19, class: "label middle" }, "–") : null);
      }),
    ]));
}

/** Return a scale of the shades as a small picture. */
export function scale() {
  return s("svg", { class: "heat", width: 14 * SHADES, height: 12, viewBox: `0 0 ${14 * SHADES} 12`, "aria-hidden": "true" },
    ...Array.from({ length: SHADES }, (_, place) => s("rect", { x: 14 * place, y: 0, width: 14, height: 12, class: `shade-${place}` })));
}

function shades(values) {
  const above = values.filter((value) => value > 0).map(Math.log);
  const [least, most] = [Math.min(...above), Math.max(...above)];
  return (value) => {
    if (value === null || value === undefined) return "no-value";
    if (value <= 0 || most === least) return "shade-0";
    return `shade-${Math.round(((Math.log(value) - least) / (most - least)) * (SHADES - 1))}`;
  };
}
