// The REST reference: the service's own OpenAPI document, shown by Swagger UI; the page sends no requests of its own.

import { ROOT } from "./places.js";
import { read } from "./rest.js";

const domNode = document.getElementById("reference");
try {
  const spec = await read(`${ROOT}/openapi.json`);
  window.SwaggerUIBundle({ spec, domNode, supportedSubmitMethods: [], validatorUrl: null });
} catch (error) {
  domNode.textContent = `The reference cannot be shown: ${error.message}. If the service needs a token, enter it on the dashboard first.`;
}
