// The bearer token of a reader, for a service that needs one; kept for this tab only.

import { h } from "./dom.js";

const NAME = "cmfl-token";
const MOST = 500;

/** Return the headers with the token, if there is one. */
export function credentials() {
  const token = sessionStorage.getItem(NAME);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Say whether a token was given. */
export const hasToken = () => sessionStorage.getItem(NAME) !== null;

/** Return a form for the token; `given` is called once it is stored. */
export function tokenForm(given) {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", maxlength: MOST, required: true });
  const form = h("form", { class: "filters card" },
    h("label", { for: "token" }, "Token for this service", field),
    h("button", { type: "submit" }, "Use token"),
    hasToken() ? h("button", { type: "button", on: { click: () => kept("", given) } }, "Forget the current token") : null);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    kept(field.value.trim(), given);
  });
  return form;
}

function kept(token, given) {
  if (/^[\x21-\x7e]+$/.test(token)) sessionStorage.setItem(NAME, token);
  else sessionStorage.removeItem(NAME);
  given();
}
