// Building blocks of every page.

import { fill, h, told, visible } from "./dom.js";
import { short } from "./format.js";
import { GLOSSARY } from "./words.js";

/** Return a word with its meaning as a hint, for pointer, keyboard and screen reader. */
export function term(word, shown = word) {
  return h("span", { class: "term", tabindex: "0", role: "note", "aria-describedby": `word-${word.replaceAll(" ", "-")}` }, shown);
}

/** Fill the list of meanings that `term` refers to. */
export function fillGlossary(list) {
  fill(list, ...Object.entries(GLOSSARY).map(([word, meaning]) => [
    h("dt", {}, word),
    h("dd", { id: `word-${word.replaceAll(" ", "-")}` }, meaning),
  ]));
}

/** Show a word's meaning beside it while it has the pointer or the focus; Escape hides it. */
export function showTerms(tip) {
  const show = (event) => {
    const word = event.target.closest?.(".term");
    if (!word) return;
    fill(tip, document.getElementById(word.getAttribute("aria-describedby"))?.textContent ?? "");
    tip.hidden = false;
    const at = word.getBoundingClientRect();
    const left = Math.min(at.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const below = at.bottom + 6;
    const above = at.top - tip.offsetHeight - 6;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below + tip.offsetHeight > window.innerHeight && above > 0 ? above : below}px`;
  };
  const hide = () => {
    tip.hidden = true;
  };
  document.addEventListener("focusin", show);
  document.addEventListener("mouseover", show);
  document.addEventListener("focusout", hide);
  document.addEventListener("mouseout", hide);
  document.addEventListener("scroll", hide, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
}

/** Return a section with a heading. */
export function section(title, ...children) {
  const id = `part-${title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}`;
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), ...children);
}

/** Return a table; numbers stand to the right.
 *
 * `columns` are `[heading, kind]`, kind "number", "text" or "wide"; a row is cells, or an element.
 */
export function table(caption, columns, rows, { hidden = true } = {}) {
  const cell = (content, place) => {
    const kind = columns[place][1] ?? "text";
    const tag = columns[place][2] === "row" ? "th" : "td";
    return h(tag, { class: kind, scope: tag === "th" ? "row" : null }, content);
  };
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", {},
      h("caption", { class: hidden ? "hidden" : null }, caption),
      h("thead", {}, h("tr", {}, ...columns.map(([heading, kind]) => h("th", { scope: "col", class: kind ?? "text" }, heading)))),
      h("tbody", {}, ...rows.map((row) => (row instanceof Node ? row : h("tr", {}, ...row.map(cell)))))));
}

/** Return a heading that only a screen reader needs. */
export const unseen = (text) => h("span", { class: "hidden" }, text);

/** Return a row with one cell across a table. */
export const across = (columns, ...content) => h("tr", { class: "across" }, h("td", { colspan: columns }, ...content));

/** Return names with values. */
export function facts(entries) {
  return h("dl", { class: "facts" }, ...entries.filter(Boolean).map(([name, ...value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, ...value))));
}

/** Return large numbers with their labels. */
export function figures(entries) {
  return h("dl", { class: "figures" }, ...entries.filter(Boolean).map(([name, value, note]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, String(value), note ? h("small", {}, note) : null))));
}

/** Return a digest, cut in the middle, with a button that copies all of it. */
export function digest(hex, name = "digest") {
  if (!hex) return h("span", { class: "quiet" }, "none");
  const whole = visible(hex);
  const copy = h("button", { type: "button", class: "copy", "aria-label": `Copy ${name} ${short(whole)}` }, "copy");
  copy.addEventListener("click", () => copied(copy, String(hex)));
  return h("span", { class: "digest" }, h("code", { title: whole }, h("bdi", {}, short(whole))), copy);
}

/** Return a command with a button that copies it. */
export function command(text) {
  const copy = h("button", { type: "button", class: "copy", "aria-label": "Copy the command" }, "copy");
  copy.addEventListener("click", () => copied(copy, text));
  return h("p", { class: "command" }, h("code", {}, text), copy);
}

/** Return a word in a coloured frame; the colour repeats the word's meaning. */
export const badge = (kind, text) => h("span", { class: `badge ${kind}` }, text);

/** Return a detail that is closed at first; its name keeps it open when the page is rebuilt. */
export function more(name, title, ...children) {
  return h("details", { id: `more-${name}` }, h("summary", {}, title), ...children);
}

/** Return links to the pages before and after. */
export const pager = (...links) => h("p", { class: "pager" }, ...links);

/** Return the message that replaces a page that cannot be shown. */
export function failure(title, detail) {
  return h("section", { class: "card failure", role: "alert" }, h("h1", {}, told(title)), h("p", {}, told(detail)),
    h("p", {}, h("a", { href: "#/" }, "All deployments")));
}

/** Announce a text to screen readers. */
export function say(text) {
  fill(document.getElementById("said"), text);
}

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    fill(button, "copied");
  } catch {
    showWhole(button.previousElementSibling, text);
    fill(button, "selected");
  }
  say(button.textContent);
  setTimeout(() => fill(button, "copy"), 1_500);
}

/** Show and select the text of a copy button, for browsers that deny the clipboard. */
function showWhole(code, text) {
  fill(code, h("bdi", {}, visible(text)));
  const range = document.createRange();
  range.selectNodeContents(code);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
}
