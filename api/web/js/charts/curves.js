// Curves and bars over rounds, by uPlot; colours are those of the style sheet.

import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { h } from "../dom.js";

const HEIGHT = 190;
const drawn = new Set();
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Return a chart over rounds.
 *
 * `series` are `{label, values, colour, bars, dash}`, colour the name of a variable of the style
 * sheet and values null where there are none.
 */
export function curves(label, rounds, series, { format = String, range = null } = {}) {
  const frame = h("div", { class: "curves", role: "img", "aria-label": label });
  const chart = { frame, rounds, series, format, range, plot: null };
  drawn.add(chart);
  sizes.observe(frame); // reports when the element is on the page and has a size
  return h("figure", {}, frame, legend(series));
}

/** Forget charts whose page is gone. */
export function forgetCurves() {
  for (const chart of drawn) {
    if (chart.frame.isConnected) continue;
    chart.plot?.destroy();
    drawn.delete(chart);
  }
}

const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const chart = [...drawn].find((one) => one.frame === target);
    if (!chart || contentRect.width <= 0) continue;
    if (chart.plot) chart.plot.setSize({ width: Math.floor(contentRect.width), height: HEIGHT });
    else draw(chart);
  }
});

dark.addEventListener("change", () => drawn.forEach(draw));

function draw(chart) {
  if (!chart.frame.isConnected) return;
  chart.plot?.destroy();
  const style = getComputedStyle(chart.frame);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const options = {
    width: Math.max(200, Math.floor(chart.frame.clientWidth)),
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: false, range: (_, low, high) => [low - 0.7, high + 0.7] },
      y: { range: chart.range ?? ((_, __, high) => [0, Math.max(1, high * 1.08)]) },
    },
    axes: [
      { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000], values: (_, ticks) => ticks.map(String), grid: { show: false }, size: 28 },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(chart.format) },
    ],
    series: [{}, ...chart.series.map((one) => drawnAs(one, colour(one.colour)))],
  };
  chart.plot = new uPlot(options, [chart.rounds, ...chart.series.map((one) => one.values)], chart.frame);
}

function drawnAs({ label, bars, dash }, colour) {
  if (bars) return { label, stroke: colour, fill: colour, width: 0, paths: uPlot.paths.bars({ size: [0.7, 36] }), points: { show: false } };
  return { label, stroke: colour, width: 2, dash: dash ? [6, 4] : undefined, points: { show: !dash, size: 5, fill: colour }, spanGaps: false };
}

function legend(series) {
  return h("figcaption", {}, h("ul", { class: "legend" }, ...series.map((one) =>
    h("li", {}, h("span", { class: `key ${one.colour}${one.dash ? " dashed" : ""}`, "aria-hidden": "true" }), one.label))));
}
