// Updating a page in place: unchanged elements keep their focus and scroll position.

/** Replace an element's content, changing only the parts that differ.
 *
 * For content without listeners: unchanged elements keep theirs.
 */
export function renew(shown, fresh) {
  const [before, after] = [[...shown.childNodes], [...fresh.childNodes]];
  after.forEach((node, place) => (place < before.length ? settle(before[place], node) : shown.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
}

function settle(shown, fresh) {
  if (shown.isEqualNode(fresh)) return;
  if (!(shown instanceof Element) || !(fresh instanceof Element) || shown.tagName !== fresh.tagName) {
    shown.replaceWith(fresh);
    return;
  }
  for (const { name } of [...shown.attributes]) if (!fresh.hasAttribute(name)) shown.removeAttribute(name);
  for (const { name, value } of fresh.attributes) shown.setAttribute(name, value);
  renew(shown, fresh);
}
