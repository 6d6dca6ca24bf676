// The ten steps of an audit, as the service runs them on request.

import { h, told } from "../dom.js";
import { command, section, table } from "../parts.js";
import { deploymentPath } from "../places.js";
import { has, read } from "../rest.js";
import { crumbsOf, tabs } from "../run.js";
import { STEPS } from "../words.js";

/** Return the page. */
export async function verification(place, signal) {
  const path = deploymentPath(place);
  const deployment = await read(path, signal);
  const isThere = await has("/verifications");
  return {
    title: `Verification of ${deployment.run}`,
    short: "Verification",
    crumbs: crumbsOf(deployment),
    nodes: [
      h("header", { class: "head" }, h("h1", {}, "Verification of ", told(deployment.run)), await tabs(deployment, "verification")),
      section("Ten steps",
        h("p", { class: "quiet" }, isThere ? "The service repeats every decision and says how each step ended." : "This service runs no verifications. The same ten steps run on your own machine, which is what you can trust most:"),
        isThere ? null : command("cmfl audit"),
        table("The ten steps", [["step", "number"], ["what it checks", "text", "row"]], STEPS.map((title, number) => [String(number + 1), title]))),
    ],
  };
}
