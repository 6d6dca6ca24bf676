// Formats of numbers, times and digests. Ranks and places count from 0, as in JSON and CSV; views from 1.

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Return a whole number with separators. */
export const whole = (number) => NUMBER.format(number);

/** Return a count with its word. */
export const counted = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;

/** Return what counts from 0 in data as people count. */
export const fromOne = (number) => (number === null || number === undefined ? "–" : whole(number + 1));

/** Return a distance to four significant digits; what is no finite number as such. */
export function distance(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** Return a share as a percentage. */
export const percent = (share) => `${(100 * share).toFixed(1)}%`;

/** Return millionths as a percentage. */
export const ppm = (millionths) => `${Number((millionths / 10_000).toFixed(4))}%`;

/** Return a digest's two ends. */
export const short = (hex) => (hex.length > 22 ? `${hex.slice(0, 10)}…${hex.slice(-6)}` : hex);

/** Return a time of RFC 3339 as it is, in UTC, without its letters. */
export const moment = (at) => (at ? at.replace("T", " ").replace("Z", " UTC") : "after the year 9999");

/** Return a stretch of time in seconds as people say it. */
export function lasting(seconds) {
  const all = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(all / 3_600), Math.floor((all % 3_600) / 60)];
  if (hours) return `${whole(hours)} h ${minutes} min`;
  return minutes ? `${minutes} min ${all % 60} s` : `${all} s`;
}

/** Return names one after the other. */
export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
