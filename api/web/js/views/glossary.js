// All words with what they mean.

import { h } from "../dom.js";
import { section } from "../parts.js";
import { GLOSSARY } from "../words.js";

/** Return the page. */
export async function words() {
  return {
    title: "Words",
    crumbs: [],
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Words"), h("p", { class: "quiet" }, "Underlined words show their meaning when pointed at or focused. Rounds and views count from 1. Clients, ranks and places count from 0, as in JSON and CSV; a sentence such as 'ranked 3 of 6' counts from 1.")),
      section("What they mean", h("dl", { class: "glossary" }, ...Object.entries(GLOSSARY).flatMap(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]))),
    ],
  };
}
