// @ts-check
// A tile for each pod, in a fixed order, grouped by revision. The legend is the filter.

import { counted, find, h, reconcile, setAge, setAttribute, setCells, setText } from "./elements.js";

/** The states, by letter. @type {[string, string][]} */
export const STATES = [
  ["B", "blocked"],
  ["W", "waiting for its hook"],
  ["D", "to be deleted"],
  ["U", "updating"],
  ["N", "not ready"],
  ["R", "ready"],
];
const NAMES = Object.fromEntries(STATES);
/** Above this, pods are counted, and shown on demand. */
const MAX_TILES = 10000;

/** @typedef {[string, string, number, string, string, number | null]} Row revision, state, guarded, status, info, created */

/** The fixed order: by ordinal or name. @param {string} a @param {string} b */
function order(a, b) {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

/** The whole sentence about a pod. @param {string} name @param {Row} row */
export function sentence(name, row) {
  return `${name}: ${NAMES[row[1]]}${row[2] ? ", guarded" : ""}; ${row[3]}, ${row[4]}`;
}

export class Tiles extends HTMLElement {
  connectedCallback() {
    if (this.legend) return;
    /** @type {Map<string, Row>} */
    this.rows ??= new Map();
    /** The pods of the selected cause; null if none is selected. @type {Set<string> | null} */
    this.pods ??= null;
    /** @type {Set<string>} */
    this.states = new Set();
    /** @type {Map<string, HTMLElement>} */
    this.tiles = new Map();
    /** @type {Map<string, HTMLElement>} */
    this.groups = new Map();
    this.isTable = false;
    this.isForced = false;
    /** The pod whose line is open. @type {string} */
    this.selected = "";
    /** The tile that Tab reaches. @type {HTMLElement | undefined} */
    this.current = undefined;
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Show pods that are" });
    this.toggle = h("button", {
      type: "button",
      class: "switch",
      "aria-pressed": "false",
      text: "As a table",
      onclick: () => this.setTable(!this.isTable),
    });
    this.hint = h("p", { class: "hint" });
    this.line = h("div", { class: "podline", hidden: true });
    this.box = h("div", { class: "groups" });
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    this.box.addEventListener("click", (event) => this.onClick(event));
    this.box.addEventListener("focusin", (event) => {
      const tile = event.target instanceof HTMLElement ? event.target.closest(".tile") : null;
      if (tile instanceof HTMLElement) this.setCurrent(tile);
    });
    this.append(h("div", { class: "tools" }, this.legend, this.toggle), this.hint, this.line, this.box);
  }

  /** Shows these revisions and rows. @param {any[]} revisions @param {Map<string, Row>} rows */
  reset(revisions, rows) {
    this.rows = rows;
    this.revisions = revisions;
    this.tiles?.clear();
    this.groups?.clear();
    this.box?.replaceChildren();
    this.current = undefined;
    const names = [...rows.keys()].sort(order);
    if (!this.isTooMany()) for (const name of names) this.put(name, /** @type {Row} */ (rows.get(name)), true);
    this.drawGroups();
    this.after();
  }

  /** Takes over what has changed. @param {any[]} revisions @param {string[]} changed @param {string[]} gone */
  change(revisions, changed, gone) {
    this.revisions = revisions;
    if (this.isTooMany()) {
      this.after();
      return;
    }
    for (const name of gone) {
      const tile = this.tiles?.get(name);
      if (tile && tile === this.current) this.current = undefined;
      tile?.remove();
      this.tiles?.delete(name);
    }
    for (const name of changed) {
      const row = this.rows?.get(name);
      if (row) this.put(name, row, false);
    }
    this.drawGroups();
    this.after();
  }

  /** Shows only these pods; all if null. @param {Set<string> | null} pods */
  select(pods) {
    this.pods = pods;
    this.after();
  }

  isTooMany() {
    return !this.isForced && (this.rows?.size ?? 0) > MAX_TILES;
  }

  /** @param {string} name @param {Row} row @param {boolean} isLast */
  put(name, row, isLast) {
    let tile = this.tiles?.get(name);
    const grid = find(this.group(row[0]), this.isTable ? "tbody" : ".grid");
    if (!tile) {
      tile = this.isTable ? createLine(name) : createTile(name);
      this.tiles?.set(name, tile);
    }
    if (tile.parentElement !== grid) {
      let next = null;
      if (!isLast)
        for (const other of grid.children) {
          if (order(/** @type {HTMLElement} */ (other).dataset.pod ?? "", name) > 0) {
            next = other;
            break;
          }
        }
      grid.insertBefore(tile, next);
    }
    if (this.isTable) updateLine(tile, row);
    else updateTile(tile, name, row);
  }

  /** The group of a revision. @param {string} revision @returns {HTMLElement} */
  group(revision) {
    let group = this.groups?.get(revision);
    if (!group) {
      const inner = this.isTable
        ? h(
            "div",
            { class: "scroll", tabindex: "0", role: "group", "aria-label": "Pods" },
            h(
              "table",
              { class: "plain" },
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ...["Pod", "State", "Status", "Info", "Age"].map((text) => h("th", { scope: "col", text })),
                ),
              ),
              h("tbody"),
            ),
          )
        : h("div", { class: "grid", role: "group" });
      group = h(
        "section",
        { class: "group" },
        h("h3", {}, h("span", { class: "what" }), " ", h("span", { class: "count" })),
        inner,
      );
      this.groups?.set(revision, group);
      this.box?.append(group);
    }
    return group;
  }

  drawGroups() {
    const known = this.revisions ?? [];
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const row of this.rows?.values() ?? []) counts.set(row[0], (counts.get(row[0]) ?? 0) + 1);
    const rank = (/** @type {string} */ name) => {
      const index = known.findIndex((it) => it.name === name);
      return index < 0 ? known.length : index;
    };
    const sorted = [...(this.groups ?? [])].sort(([a], [b]) => rank(a) - rank(b) || order(a, b));
    sorted.forEach(([name, group], index) => {
      const count = counts.get(name) ?? 0;
      if (count === 0) {
        group.remove();
        this.groups?.delete(name);
        return;
      }
      const revision = known.find((it) => it.name === name);
      const what = revision
        ? [`#${revision.number}`, revision.images, revision.role].filter(Boolean).join(" · ")
        : name || "no revision";
      setText(find(group, ".what"), what);
      setText(find(group, ".count"), counted(count, "pod"));
      const grid = group.querySelector(".grid");
      if (grid) setAttribute(grid, "aria-label", `Pods of ${what}`);
      if (this.box?.children[index] !== group) this.box?.insertBefore(group, this.box.children[index] ?? null);
    });
  }

  /** Whether the filters show a pod. @param {string} name @param {Row} row */
  isShown(name, row) {
    return (this.states?.size === 0 || this.states?.has(row[1])) && (!this.pods || this.pods.has(name));
  }

  after() {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const row of this.rows?.values() ?? []) counts.set(row[1], (counts.get(row[1]) ?? 0) + 1);
    const items = STATES.map(([letter, name]) => ({ letter, name, count: counts.get(letter) ?? 0 })).filter(
      (it) => it.count > 0 || this.states?.has(it.letter),
    );
    if (this.legend)
      reconcile(
        this.legend,
        items,
        (it) => it.letter,
        (it) =>
          h(
            "button",
            { type: "button", class: "filter", onclick: () => this.filter(it.letter) },
            h("span", { class: `swatch s-${it.letter}`, text: it.letter, "aria-hidden": "true" }),
            h("span", { text: it.name }),
            " ",
            h("b"),
          ),
        (element, it) => {
          setAttribute(element, "aria-pressed", this.states?.has(it.letter) ? "true" : "false");
          setText(find(element, "b"), it.count);
        },
      );
    const isFiltered = Boolean(this.states?.size) || this.pods !== null;
    if (isFiltered || this.wasFiltered) {
      for (const [name, tile] of this.tiles ?? []) {
        const row = this.rows?.get(name);
        const isHidden = row ? !this.isShown(name, row) : false;
        if (tile.hidden !== isHidden) tile.hidden = isHidden;
      }
    }
    this.wasFiltered = isFiltered;
    this.drawHint();
    this.ensureCurrent();
    if (this.selected) this.open(this.selected);
  }

  drawHint() {
    if (!this.hint) return;
    const size = this.rows?.size ?? 0;
    if (this.isTooMany()) {
      if (this.hint.querySelector("button")) return;
      this.hint.replaceChildren(
        `${size} pods are counted above, not drawn. `,
        h("button", {
          type: "button",
          text: "Draw them all",
          onclick: () => {
            this.isForced = true;
            this.reset(this.revisions ?? [], this.rows ?? new Map());
          },
        }),
      );
      return;
    }
    setText(this.hint, size === 0 ? "There are no pods." : "");
    this.hint.hidden = size > 0;
  }

  /** @param {string} letter */
  filter(letter) {
    if (!this.states?.delete(letter)) this.states?.add(letter);
    this.after();
  }

  /** @param {boolean} isTable */
  setTable(isTable) {
    this.isTable = isTable;
    if (this.toggle) setAttribute(this.toggle, "aria-pressed", String(isTable));
    this.wasFiltered = true;
    this.reset(this.revisions ?? [], this.rows ?? new Map());
  }

  /** One tile can be reached with Tab, the others from it with the arrow keys. */
  ensureCurrent() {
    if (this.isTable || (this.current?.isConnected && !this.current.hidden)) return;
    const first = this.box?.querySelector(".tile:not([hidden])");
    if (first instanceof HTMLElement) this.setCurrent(first);
  }

  /** @param {HTMLElement} tile */
  setCurrent(tile) {
    if (this.current && this.current !== tile) this.current.tabIndex = -1;
    tile.tabIndex = 0;
    this.current = tile;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const tile = event.target instanceof HTMLElement ? event.target : null;
    if (!tile?.classList.contains("tile")) return;
    const all = /** @type {HTMLElement[]} */ ([...(this.box?.querySelectorAll(".tile:not([hidden])") ?? [])]);
    const index = all.indexOf(tile);
    const target = {
      ArrowRight: () => all[index + 1],
      ArrowLeft: () => all[index - 1],
      ArrowDown: () => below(all, index, 1),
      ArrowUp: () => below(all, index, -1),
      Home: () => all[0],
      End: () => all[all.length - 1],
    }[event.key];
    if (!target) return;
    event.preventDefault();
    target()?.focus();
  }

  /** @param {Event} event */
  onClick(event) {
    const target = event.target instanceof HTMLElement ? event.target.closest("[data-pod]") : null;
    if (target instanceof HTMLElement) this.open(target.dataset.pod ?? "", true);
  }

  /** Opens the line of a pod. @param {string} name @param {boolean} [isNew] */
  open(name, isNew = false) {
    const row = this.rows?.get(name);
    if (!this.line) return;
    if (isNew && this.selected && this.selected !== name)
      this.tiles?.get(this.selected)?.removeAttribute("aria-expanded");
    if (!row) {
      this.selected = "";
      this.line.hidden = true;
      return;
    }
    if (isNew && this.selected !== name) {
      this.line.replaceChildren(
        h(
          "p",
          {},
          h("b", { text: name }),
          " ",
          h("span", { class: "text" }),
          ", ",
          h("time"),
          h("span", { text: " old" }),
        ),
        h("div", { class: "buttons" }),
        h("button", { type: "button", class: "close", text: "Close", onclick: () => this.closeLine() }),
      );
    }
    this.selected = name;
    this.line.hidden = false;
    setText(find(this.line, ".text"), sentence(name, row).slice(name.length + 2));
    setAge(find(this.line, "time"), row[5]);
    this.dispatchEvent(
      new CustomEvent("pod", { bubbles: true, detail: { name, row, buttons: find(this.line, ".buttons") } }),
    );
    if (isNew) this.tiles?.get(name)?.setAttribute("aria-expanded", "true");
  }

  closeLine() {
    const tile = this.tiles?.get(this.selected ?? "");
    this.selected = "";
    if (this.line) this.line.hidden = true;
    tile?.removeAttribute("aria-expanded");
    tile?.focus();
  }
}

/** The tile in the next or previous line of tiles. @param {HTMLElement[]} all @param {number} index @param {1 | -1} step */
function below(all, index, step) {
  const from = all[index].getBoundingClientRect();
  let line = null;
  let best;
  for (let i = index + step; i >= 0 && i < all.length; i += step) {
    const box = all[i].getBoundingClientRect();
    if (Math.abs(box.top - from.top) < 2) continue;
    if (line !== null && Math.abs(box.top - line) > 2) break;
    line = box.top;
    if (!best || Math.abs(box.left - from.left) < Math.abs(best.left - from.left))
      best = { left: box.left, tile: all[i] };
  }
  return best?.tile;
}

/** @param {string} name */
function createTile(name) {
  return h("button", { type: "button", class: "tile", tabindex: "-1", "data-pod": name });
}

/** @param {HTMLElement} tile @param {string} name @param {Row} row */
function updateTile(tile, name, row) {
  setAttribute(tile, "class", `tile s-${row[1]}${row[2] ? " guarded" : ""}`);
  setAttribute(tile, "aria-label", sentence(name, row));
  setAttribute(tile, "title", sentence(name, row));
  setText(tile, row[1]);
}

/** @param {string} name */
function createLine(name) {
  return h(
    "tr",
    { "data-pod": name },
    h("th", { scope: "row" }, h("button", { type: "button", class: "link", text: name })),
    h("td"),
    h("td"),
    h("td", { class: "message" }),
    h("td", {}, h("time")),
  );
}

/** @param {HTMLElement} line @param {Row} row */
function updateLine(line, row) {
  setCells(line, 1, [`${row[1]} ${NAMES[row[1]]}`, row[3], row[4]]);
  setAge(find(line, "time"), row[5]);
}

customElements.define("game-tiles", Tiles);
