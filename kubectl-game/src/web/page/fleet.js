// @ts-check
// The fleet: one row for each workload, SidecarSet and Cluster. What needs a person comes first.

import { counted, find, h, reconcile, setAge, setAttribute, setCells, setText, showFacts } from "./elements.js";
import { Live } from "./live.js";

/** The filters, by the ranks that the server gives. @type {[string, string, number[]][]} */
const FILTERS = [
  ["all", "All", [0, 1, 2, 3, 4]],
  ["person", "Needs a person", [0, 1]],
  ["waiting", "Waiting", [2]],
  ["updating", "Updating", [3]],
  ["complete", "Complete", [4]],
];

const KINDS = /** @type {Record<string, string>} */ ({
  gd: "GameDeployment",
  gsts: "GameStatefulSet",
  scs: "SidecarSet",
  cluster: "Cluster",
});

/** The address of a row's page. @param {any} row */
export function address(row) {
  const parts = row.namespace ? [row.namespace, row.kind, row.name] : [row.kind, row.name];
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

export class Fleet extends HTMLElement {
  connectedCallback() {
    if (this.live) return;
    const options = new URLSearchParams(location.search);
    this.state = options.get("state") ?? "all";
    this.words = options.get("q") ?? "";
    this.search = h("input", {
      type: "search",
      id: "search",
      placeholder: "Name, namespace or kind",
      value: this.words,
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.filter(this.state, this.search?.value ?? ""),
    });
    this.append(
      h("h1", { text: "Fleet" }),
      h("p", { class: "summary", id: "summary" }),
      h("p", { class: "note", id: "note", hidden: true }),
      h(
        "section",
        { id: "ended", "aria-labelledby": "ended-heading", hidden: true },
        h("h2", { id: "ended-heading", text: "Matches ended in spite of the guard" }),
        h("ul", { class: "timeline" }),
      ),
      h(
        "div",
        { class: "tools" },
        h("div", { class: "filters", role: "group", "aria-label": "Show" }),
        h("label", { class: "search" }, h("span", { class: "unseen", text: "Search" }), this.search),
      ),
      h(
        "table",
        { class: "fleet" },
        h("caption", { class: "unseen", text: "Workloads, what needs a person first" }),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ...["Status", "Name", "What it says", "Step", "Ready", "Guarded"].map((text) =>
              h("th", { scope: "col", text }),
            ),
          ),
        ),
        h("tbody"),
      ),
      h("p", { class: "empty", hidden: true }),
    );
    const namespace = options.get("namespace");
    this.namespace = namespace;
    this.live = new Live(
      namespace ? `/api/fleet?namespace=${encodeURIComponent(namespace)}` : "/api/fleet",
      () => this.draw(),
      (state, since, why) => {
        this.dispatchEvent(new CustomEvent("connection", { bubbles: true, detail: { state, since, why } }));
      },
    );
  }

  disconnectedCallback() {
    this.live?.close();
  }

  /** Filters are part of the address, so that a view can be shared. @param {string | undefined} state @param {string} words */
  filter(state, words) {
    this.state = state ?? "all";
    this.words = words;
    const options = new URLSearchParams();
    if (this.state !== "all") options.set("state", this.state);
    if (words) options.set("q", words);
    if (this.namespace) options.set("namespace", this.namespace);
    const query = options.toString();
    history.replaceState(null, "", query ? `/?${query}` : "/");
    this.draw();
  }

  draw() {
    if (!this.live) return;
    const all = [...this.live.rows.values()];
    const words = (this.words ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const text = (/** @type {any} */ row) =>
      `${row.namespace ?? ""} ${row.kind}/${row.name} ${KINDS[row.kind]} ${row.word}`.toLowerCase();
    const found = all.filter((row) => words.every((word) => text(row).includes(word)));
    const ranks = FILTERS.find(([name]) => name === this.state)?.[2] ?? [0, 1, 2, 3, 4];
    const shown = found.filter((row) => ranks.includes(row.order));
    const key = (/** @type {any} */ row) => `${row.namespace ?? ""}/${row.kind}/${row.name}`;
    shown.sort((a, b) => a.order - b.order || (key(a) < key(b) ? -1 : 1));
    this.drawFilters(found);
    this.drawHead(all);
    reconcile(find(this, "tbody"), shown, key, createRow, updateRow);
    const empty = find(this, ".empty");
    empty.hidden = shown.length > 0;
    const nothing = "There is no workload here yet. Create one with: kubectl apply -f examples/first-hour/";
    setText(empty, all.length === 0 ? nothing : "No workload matches these filters.");
  }

  /** @param {any[]} rows */
  drawFilters(rows) {
    const buttons = FILTERS.map(([name, label, ranks]) => {
      return { name, label, count: rows.filter((row) => ranks.includes(row.order)).length };
    });
    reconcile(
      find(this, ".filters"),
      buttons,
      (it) => it.name,
      (it) =>
        h(
          "button",
          { type: "button", class: `filter ${it.name}`, onclick: () => this.filter(it.name, this.words ?? "") },
          h("span", { text: it.label }),
          " ",
          h("b"),
        ),
      (element, it) => {
        setAttribute(element, "aria-pressed", it.name === this.state ? "true" : "false");
        setText(find(element, "b"), it.count);
      },
    );
  }

  /** @param {any[]} rows */
  drawHead(rows) {
    const scope = this.live?.parts.scope ?? {};
    const place = scope.namespace ? `namespace ${scope.namespace}` : "all namespaces";
    const person = rows.filter((row) => row.order <= 1).length;
    const need =
      person === 0 ? "nothing needs a person" : `${person} of them ${person === 1 ? "needs" : "need"} a person`;
    setText(find(this, "#summary"), `${counted(rows.length, "object")} in ${place}, ${need}.`);
    const note = find(this, "#note");
    note.hidden = !scope.note;
    setText(note, scope.note);
    this.drawEnded(this.live?.parts.ended ?? []);
  }

  /** @param {any[]} events */
  drawEnded(events) {
    find(this, "#ended").hidden = events.length === 0;
    reconcile(
      find(this, "#ended ul"),
      events,
      (it, index) => `${it.at} ${it.namespace}/${it.name} ${index}`,
      (it) =>
        h(
          "li",
          { class: "warning" },
          h("span", { class: "since" }, h("time"), " ago"),
          h("a", { href: address(it), text: `${it.name} in ${it.namespace}` }),
          h("span", { class: "message" }),
        ),
      (element, it) => {
        setAge(find(element, "time"), it.at);
        setText(find(element, ".message"), it.count > 1 ? `${it.message} (${it.count} times)` : it.message);
      },
    );
  }
}

/** @param {any} row */
function createRow(row) {
  return h(
    "tr",
    {},
    h("td", { class: "status" }, h("span", { class: "badge" })),
    h(
      "th",
      { scope: "row", class: "name" },
      h("a", { href: address(row), text: row.name }),
      h("span", { class: "where", text: [KINDS[row.kind], row.namespace].filter(Boolean).join(" in ") }),
    ),
    h("td", { class: "says" }, h("span", { class: "sentence" }), h("span", { class: "since" }, "for ", h("time"))),
    h("td", { class: "step", "data-label": "step" }),
    h(
      "td",
      { class: "ready", "data-label": "ready" },
      h("span", { class: "count" }),
      h("span", { class: "meter", "aria-hidden": "true" }, h("i")),
    ),
    h("td", { class: "guarded", "data-label": "guarded" }),
  );
}

/** Sets the text of a cell; one without a value is not shown on narrow screens. @param {HTMLElement} cell @param {string} text */
function setCell(cell, text) {
  cell.classList.toggle("none", text === "");
  setText(cell.querySelector(".count") ?? cell, text || "–");
}

/** @param {HTMLElement} element @param {any} row */
function updateRow(element, row) {
  const badge = find(element, ".badge");
  setAttribute(badge, "class", `badge ${row.tone}`);
  setText(badge, row.word);
  setText(find(element, ".sentence"), row.sentence || "–");
  const since = find(element, ".since");
  since.hidden = row.since === null || row.since === undefined;
  setAge(find(since, "time"), row.since);
  setCell(find(element, ".step"), row.step === "-" ? "" : (row.step ?? ""));
  setCell(find(element, ".ready"), row.desired === undefined ? "" : `${row.ready} of ${row.desired}`);
  const share = row.desired > 0 ? Math.min(1, row.ready / row.desired) : 1;
  find(element, ".meter i").style.inlineSize = `${Math.round(share * 100)}%`;
  const waiting = row.waiting && row.waiting !== "0" ? `, ${row.waiting} waiting` : "";
  setCell(find(element, ".guarded"), row.guarded ? `${row.guarded}${waiting}` : "");
}

customElements.define("game-fleet", Fleet);

/** The page of a SidecarSet or a Cluster: its row, and its conditions. */
export class Single extends HTMLElement {
  connectedCallback() {
    if (this.live) return;
    const [, kind, name] = location.pathname.split("/").map(decodeURIComponent);
    this.kind = kind;
    this.name = name;
    this.append(
      h("p", { class: "kind", text: KINDS[kind] ?? kind }),
      h("h1", { text: name }),
      h(
        "div",
        { class: "verdict" },
        h("span", { class: "badge" }),
        h("p", { class: "sentence" }),
        h("p", { class: "since" }, "for ", h("time")),
      ),
      h("p", { class: "fix" }),
      h("dl", { class: "facts" }),
      h(
        "section",
        { "aria-labelledby": "conditions-title" },
        h("h2", { id: "conditions-title", text: "Conditions" }),
        h(
          "table",
          { class: "plain" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ...["Condition", "Status", "Reason", "Message", "Since"].map((text) => h("th", { scope: "col", text })),
            ),
          ),
          h("tbody"),
        ),
      ),
    );
    this.live = new Live(
      "/api/fleet",
      () => this.draw(),
      (state, since, why) => {
        this.dispatchEvent(new CustomEvent("connection", { bubbles: true, detail: { state, since, why } }));
      },
    );
  }

  disconnectedCallback() {
    this.live?.close();
  }

  draw() {
    const rows = [...(this.live?.rows.values() ?? [])];
    const row = rows.find((it) => it.kind === this.kind && it.name === this.name);
    const badge = find(this, ".badge");
    if (!row) {
      setAttribute(badge, "class", "badge faint");
      setText(badge, "Not found");
      setText(find(this, ".sentence"), "it does not exist, or you may not list it");
      return;
    }
    setAttribute(badge, "class", `badge ${row.tone}`);
    setText(badge, row.word);
    setText(find(this, ".sentence"), row.sentence);
    find(this, ".since").hidden = !row.since;
    setAge(find(this, ".since time"), row.since);
    setText(find(this, ".fix"), row.fix);
    const facts =
      row.kind === "cluster"
        ? [["Nodes", `${row.ready} of ${row.desired} installed`]]
        : [["Pods", `${row.updated} of ${row.desired} updated, ${row.ready} of them ready`]];
    showFacts(find(this, ".facts"), facts);
    reconcile(
      find(this, "tbody"),
      row.conditions ?? [],
      (it) => it.type,
      (it) =>
        h(
          "tr",
          {},
          h("th", { scope: "row", text: it.type }),
          h("td"),
          h("td"),
          h("td", { class: "message" }),
          h("td", {}, h("time")),
        ),
      (element, it) => {
        setCells(element, 1, [it.status, it.reason, it.message]);
        setAge(find(element, "time"), it.since);
      },
    );
  }
}

customElements.define("game-single", Single);
