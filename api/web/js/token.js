// The bearer token that a reader shows, where a service asks for one: kept for this tab alone.

import { h } from "./dom.js";

const NAME = "cmfl-token";
const MOST = 500;

/** Return the headers that show the token; none where none was given. */
export function credentials() {
  const token = sessionStorage.getItem(NAME);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Say whether a token was given. */
export const hasToken = () => sessionStorage.getItem(NAME) !== null;

/** Return a form that asks for the token; `given` is called with it in place. */
export function tokenForm(given) {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", maxlength: MOST, required: true });
  const form = h("form", { class: "filters card" },
    h("label", { for: "token" }, "Token that this service knows", field),
    h("button", { type: "submit" }, "Use it"),
    hasToken() ? h("button", { type: "button", on: { click: () => kept("", given) } }, "Forget the one in use") : null);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    kept(field.value.trim(), given);
  });
  return form;
}

function kept(token, given) {
  // What no header can carry is no token.
  if (/^[\x21-\x7e]+$/.test(token)) sessionStorage.setItem(NAME, token);
  else sessionStorage.removeItem(NAME);
  given();
}
