// Files to take along: what needs a token is fetched with it, and a blob is compared with its name first.

import { fill, h } from "./dom.js";
import { digest, say } from "./parts.js";
import { ROOT } from "./places.js";
import { credentials, hasToken } from "./token.js";

const LARGEST = 512 * 2 ** 20;

/** Return a link that saves a file of the service. */
export function download(path, filename, text, attributes = {}) {
  const link = h("a", { href: path, download: filename, ...attributes }, text);
  link.addEventListener("click", async (event) => {
    if (!hasToken()) return;
    event.preventDefault();
    try {
      saved(await fetched(path), filename);
      say(`${filename} was saved`);
    } catch (error) {
      say(`${filename}: ${error.message}`);
    }
  });
  return link;
}

/** Return a digest with a button that gets the file of this sha256, checks it here, and saves it. */
export function blob(hex, name) {
  if (!hex) return digest(hex, name);
  const said = h("span", { class: "quiet", role: "status" });
  const button = h("button", { type: "button", class: "copy", "aria-label": `Get and check the file of ${name} ${hex.slice(0, 10)}` }, "get and check");
  button.addEventListener("click", async () => {
    button.disabled = true;
    fill(said, "reading …");
    fill(said, await checked(hex.replace(/^0x/, ""), name));
    button.disabled = false;
  });
  return h("span", { class: "digest" }, digest(hex, name), button, said);
}

async function checked(hex, name) {
  let data;
  try {
    data = await fetched(`${ROOT}/v1/blobs/${hex}`);
  } catch (error) {
    return h("span", { class: "badge" }, error.message);
  }
  // Browsers compute no digests for pages that came over plain http from another machine.
  if (!crypto.subtle) return h("span", { class: "badge" }, "cannot be checked over plain http");
  const found = new Uint8Array(await crypto.subtle.digest("SHA-256", await data.arrayBuffer()));
  const computed = [...found].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (computed !== hex) return h("span", { class: "badge bad" }, "✗ its sha256 is another: not saved");
  saved(data, `${name.replaceAll(/[^a-z0-9]+/gi, "-")}-${hex.slice(0, 16)}`);
  return h("span", { class: "badge good" }, `✓ ${data.size} bytes with this sha256, saved`);
}

async function fetched(path) {
  const answer = await fetch(path, { headers: credentials() }).catch(() => {
    throw new Error("the service does not answer");
  });
  if (answer.status === 404) throw new Error("it is not here");
  if (!answer.ok) throw new Error(`refused, status ${answer.status}`);
  if (Number(answer.headers.get("Content-Length")) > LARGEST) throw new Error("too large for a page; read it by curl");
  return answer.blob();
}

function saved(data, filename) {
  const address = URL.createObjectURL(data);
  const link = h("a", { download: filename });
  link.href = address;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
