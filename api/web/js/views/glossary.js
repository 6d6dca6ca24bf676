// The glossary.

import { h } from "../dom.js";
import { section } from "../parts.js";
import { GLOSSARY } from "../words.js";

/** Return the page. */
export async function words() {
  return {
    title: "Glossary",
    crumbs: [],
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Glossary"), h("p", { class: "quiet" }, "Point at an underlined word, or focus it, to see its meaning. Rounds and views count from 1. Clients, ranks and places count from 0, as in JSON and CSV. Phrases such as 'ranked 3 of 6' count from 1.")),
      section("Terms", h("dl", { class: "glossary" }, ...Object.entries(GLOSSARY).flatMap(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]))),
    ],
  };
}
