// Downloads: fetched with the token if there is one; a blob's digest is checked first.

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
      say(`Saved ${filename}`);
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
  const button = h("button", { type: "button", class: "copy", "aria-label": `Download and check ${name} ${hex.slice(0, 10)}` }, "download and check");
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
  if (!crypto.subtle) return h("span", { class: "badge" }, "cannot check over plain HTTP");
  const found = new Uint8Array(await crypto.subtle.digest("SHA-256", await data.arrayBuffer()));
  const computed = [...found].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (computed !== hex) return h("span", { class: "badge bad" }, "✗ wrong sha256, not saved");
  saved(data, `${name.replaceAll(/[^a-z0-9]+/gi, "-")}-${hex.slice(0, 16)}`);
  return h("span", { class: "badge good" }, `✓ sha256 matches, ${data.size} bytes saved`);
}

async function fetched(path) {
  const answer = await fetch(path, { headers: credentials() }).catch(() => {
    throw new Error("no response from the service");
  });
  if (answer.status === 404) throw new Error("this service does not have the file");
  if (!answer.ok) throw new Error(`request refused with status ${answer.status}`);
  if (Number(answer.headers.get("Content-Length")) > LARGEST) throw new Error("too large for the browser; download it with curl");
  return answer.blob();
}

function saved(data, filename) {
  const address = URL.createObjectURL(data);
  const link = h("a", { download: filename });
  link.href = address;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
