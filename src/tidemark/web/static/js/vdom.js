// A small virtual DOM: views are functions that return a description, `render` makes the page equal to it.
//
// What it promises: data only ever becomes text nodes, attributes or properties, never markup; elements that stay
// keep their focus, scroll position and selection; children with a `key` move instead of being built anew.
// It runs no markup parser and sets styles through the CSSOM, so a Content-Security-Policy without 'unsafe-inline' holds.

const SVG = "http://www.w3.org/2000/svg";
const HOOKS = new Set(["key", "mount", "update", "unmount"]);
// Set as properties: their attributes only say what the value was at first.
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "selected"]);

/**
 * Describes an element. `on…` properties are listeners, `style` is an object of CSS properties, and the hooks
 * `mount(element)`, `update(element)` and `unmount(element)` are for what draws itself (charts, dialogs).
 */
export function h(tag, props, ...children) {
  return { tag, props: props || {}, key: props?.key, children: flatten(children, []) };
}

function flatten(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) flatten(child, into);
    else if (child !== null && child !== undefined && child !== false && child !== true) {
      into.push(typeof child === "object" ? child : String(child));
    }
  }
  return into;
}

/** Makes the children of `container` equal to `nodes`; what an earlier call put there is changed in place. */
export function render(container, ...nodes) {
  const next = flatten(nodes, []);
  patchChildren(container, container.rendered || [], next);
  container.rendered = next;
}

function create(node, parent) {
  if (typeof node === "string") return document.createTextNode(node);
  const svg = node.tag === "svg" || (parent.namespaceURI === SVG && parent.tagName !== "foreignObject");
  const element = svg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  patchChildren(element, [], node.children);
  patchProps(element, {}, node.props); // after the children: the value of a select needs its options
  return element;
}

function mounted(node, element) {
  if (typeof node === "string") return;
  node.children.forEach((child, i) => mounted(child, element.childNodes[i]));
  node.props.mount?.(element);
}

function unmounted(node, element) {
  if (typeof node === "string") return;
  node.children.forEach((child, i) => unmounted(child, element.childNodes[i]));
  node.props.unmount?.(element);
}

function same(a, b) {
  if (typeof a === "string" || typeof b === "string") return typeof a === typeof b;
  return a.tag === b.tag && a.key === b.key;
}

function patch(element, before, after) {
  if (before === after) return;
  if (typeof after === "string") {
    if (before !== after) element.data = after;
    return;
  }
  patchChildren(element, before.children, after.children);
  patchProps(element, before.props, after.props);
  after.props.update?.(element);
}

function patchChildren(parent, before, after) {
  const elements = before.map((_, i) => parent.childNodes[i]);
  const taken = new Array(before.length).fill(false);
  const keyed = new Map();
  before.forEach((node, i) => node.key !== undefined && keyed.set(node.key, i));

  let from = 0; // nodes without a key are matched in order
  const matches = after.map((node, j) => {
    let i;
    if (node.key !== undefined) {
      i = keyed.get(node.key);
    } else {
      if (j < before.length && before[j].key === undefined && !taken[j] && same(before[j], node)) i = j;
      else {
        while (from < before.length && (taken[from] || before[from].key !== undefined)) from++;
        i = from < before.length ? from : undefined;
      }
    }
    if (i === undefined || taken[i] || !same(before[i], node)) return -1;
    taken[i] = true;
    return i;
  });

  before.forEach((node, i) => {
    if (taken[i]) return;
    unmounted(node, elements[i]);
    elements[i].remove();
  });
  after.forEach((node, j) => {
    const i = matches[j];
    const here = parent.childNodes[j];
    if (i < 0) {
      const element = create(node, parent);
      parent.insertBefore(element, here || null);
      if (parent.isConnected) mounted(node, element);
    } else {
      if (elements[i] !== here) parent.insertBefore(elements[i], here || null);
      patch(elements[i], before[i], node);
    }
  });
}

function patchProps(element, before, after) {
  for (const name in before) if (!(name in after)) setProp(element, name, before[name], undefined);
  for (const name in after) setProp(element, name, before[name], after[name]);
}

function setProp(element, name, before, value) {
  if (HOOKS.has(name)) return;
  if (name === "style") {
    setStyle(element, before || {}, value || {});
  } else if (name.startsWith("on")) {
    listen(element, name.slice(2).toLowerCase(), value);
  } else if (PROPERTIES.has(name)) {
    // A box the user is typing in keeps what was typed: only a change of ours is written.
    if (before !== value && element[name] !== value) element[name] = value ?? "";
  } else if (before !== value) {
    if (value === undefined || value === null || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function setStyle(element, before, after) {
  for (const name in before) if (!(name in after)) element.style.removeProperty(name);
  for (const name in after) if (before[name] !== after[name]) element.style.setProperty(name, after[name]);
}

function listen(element, event, listener) {
  element.listeners ||= {};
  if (!(event in element.listeners)) element.addEventListener(event, (e) => element.listeners[event]?.(e));
  element.listeners[event] = listener;
}
