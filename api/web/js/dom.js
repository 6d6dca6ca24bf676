// Creating elements: the contents of records become text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const LONGEST = 1_000;
// Control characters, and those that turn the direction of what follows: shown, not obeyed.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;

/** Return an element; strings among the children become text. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Return an element of SVG. */
export function s(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Return foreign text: isolated, with invisible characters spelled out, and shortened. */
export function told(text) {
  return h("bdi", { class: "told" }, visible(text));
}

/** Return foreign text as a string that can be shown. */
export function visible(text) {
  const all = String(text);
  const cut = all.length > LONGEST ? `${all.slice(0, LONGEST)} … (${all.length} characters)` : all;
  return cut.replace(HIDDEN, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Replace the content of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(isThere));
  return element;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    } else {
      refuseScript(name, value);
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter(isThere));
  return element;
}

function refuseScript(name, value) {
  const leads = name === "href" || name === "src";
  if (/^on|^style$|^srcdoc$/i.test(name) || (leads && !/^(#|\/(?!\/))/.test(String(value)))) {
    throw new Error(`a page may not set the attribute ${name}`);
  }
}

function isThere(child) {
  return child !== null && child !== undefined && child !== false;
}
