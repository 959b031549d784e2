// @ts-check
// Building and updating elements. Text is only ever set as text.

/**
 * Makes an element. Properties that start with "on" are listeners; "text" is its text; others are attributes.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else setAttribute(element, name, value);
  }
  element.append(...children);
  return element;
}

/**
 * Sets an attribute, or removes it if the value is null, undefined or false.
 * @param {Element} element @param {string} name @param {any} value
 */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else {
    const text = value === true ? "" : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/**
 * Sets the text of an element, if it differs.
 * @param {Element} element @param {string | number | null | undefined} text
 */
export function setText(element, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/**
 * The element below a parent that a part of the page updates.
 * @param {ParentNode} parent @param {string} selector @returns {HTMLElement}
 */
export function find(parent, selector) {
  const found = parent.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`no ${selector}`);
  return found;
}

/**
 * Makes the children of a parent show these items, in this order. Children keep their identity, and with it focus and
 * selection, as long as their key stays.
 * @template T
 * @param {Element} parent @param {T[]} items @param {(item: T, index: number) => string} key
 * @param {(item: T) => HTMLElement} create @param {(element: HTMLElement, item: T) => void} update
 */
export function reconcile(parent, items, key, create, update) {
  /** @type {Map<string, HTMLElement>} */
  const old = new Map();
  for (const child of parent.children) {
    if (child instanceof HTMLElement) old.set(child.dataset.key ?? "", child);
  }
  /** @type {Element | null} */
  let next = parent.firstElementChild;
  items.forEach((item, index) => {
    const name = key(item, index);
    let element = old.get(name);
    old.delete(name);
    if (!element) {
      element = create(item);
      element.dataset.key = name;
    }
    update(element, item);
    if (element === next) next = next.nextElementSibling;
    else place(parent, element, next);
  });
  for (const element of old.values()) element.remove();
}

/** Shows pairs of a name and a value in a description list. @param {Element} list @param {any[][]} facts */
export function showFacts(list, facts) {
  reconcile(
    list,
    facts,
    ([name]) => name,
    ([name]) => h("div", {}, h("dt", { text: name }), h("dd")),
    (element, [, value]) => setText(find(element, "dd"), value),
  );
}

/**
 * Puts an element before another one, and keeps its focus where the browser can.
 * @param {Element} parent @param {HTMLElement} element @param {Element | null} before
 */
export function place(parent, element, before) {
  const target = /** @type {any} */ (parent);
  if (element.isConnected && element.parentElement && target.moveBefore) target.moveBefore(element, before);
  else parent.insertBefore(element, before);
}

/**
 * A number of seconds in the units of kubectl.
 * @param {number} seconds
 */
export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const [m, hours, days] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86400)];
  const two = (/** @type {number} */ a, /** @type {string} */ u, /** @type {number} */ b, /** @type {string} */ v) =>
    b === 0 ? `${a}${u}` : `${a}${u}${b}${v}`;
  if (s < 120) return `${s}s`;
  if (m < 10) return two(m, "m", s % 60, "s");
  if (hours < 3) return `${m}m`;
  if (hours < 8) return two(hours, "h", m % 60, "m");
  if (hours < 48) return `${hours}h`;
  if (days < 8) return two(days, "d", hours % 24, "h");
  if (days < 730) return `${days}d`;
  return two(Math.floor(days / 365), "y", days % 365, "d");
}

/** The time that ages are counted to; null while it is now. @type {number | null} */
let frozen = null;

/** Stops ages while the connection is lost. @param {number | null} at */
export function freezeAges(at) {
  frozen = at;
  document.documentElement.classList.toggle("stale", at !== null);
  refreshAges();
}

/** Brings all ages on the page up to date. */
export function refreshAges() {
  const now = frozen ?? Date.now() / 1000;
  for (const element of document.querySelectorAll("time[data-at]")) {
    const { at, until } = /** @type {HTMLElement} */ (element).dataset;
    const seconds = until ? Number(at) - now : now - Number(at);
    setText(element, span(seconds));
  }
}

/**
 * Shows how long ago a time was, or, with `until`, how far ahead it is.
 * @param {HTMLElement} element @param {number | null | undefined} at @param {boolean} [until]
 */
export function setAge(element, at, until = false) {
  if (at === null || at === undefined) {
    delete element.dataset.at;
    setText(element, "");
    return;
  }
  element.dataset.at = String(at);
  if (until) element.dataset.until = "1";
  setAttribute(element, "datetime", new Date(at * 1000).toISOString());
  setAttribute(element, "title", new Date(at * 1000).toLocaleString());
  const now = frozen ?? Date.now() / 1000;
  setText(element, span(until ? at - now : now - at));
}

/**
 * Sets the texts of the cells of a table row, from this one on.
 * @param {Element} row @param {number} from @param {(string | number | null | undefined)[]} texts
 */
export function setCells(row, from, texts) {
  for (const [index, text] of texts.entries()) setText(row.children[from + index], text);
}

/** A count with its noun. @param {number} count @param {string} one @param {string} [many] */
export function counted(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/** Says a sentence to screen readers, at most every five seconds. @param {string} sentence */
export function announce(sentence) {
  pending = sentence;
  if (timer === undefined) speak();
}

const PAUSE = 5000;
let pending = "";
/** @type {number | undefined} */
let timer;

function speak() {
  timer = undefined;
  if (!pending) return;
  setText(find(document, "#announcer"), pending);
  pending = "";
  timer = window.setTimeout(speak, PAUSE);
}
