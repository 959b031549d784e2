// @ts-check
// One workload, top to bottom: the sentence, what it waits for, its steps, pods, hooks, revisions and events.

import { confirm, copyable } from "./actions.js";
import { announce, counted, find, h, reconcile, setAge, setAttribute, setText, showFacts } from "./elements.js";
import { Live } from "./live.js";
import { drawRuns } from "./runs.js";
import { reason } from "./session.js";
import { Tiles } from "./tiles.js";

/** @param {string} id @param {string} title @param {...Node} children */
function section(id, title, ...children) {
  return h(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title`, text: title }),
    ...children,
  );
}

export class Workload extends HTMLElement {
  connectedCallback() {
    if (this.live) return;
    this.path = `/api/workload${location.pathname}`;
    this.cause = "";
    /** What was read aloud last. @type {string} */
    this.spoken = "";
    /** @type {string} */
    this.selectedPods = "";
    this.tiles = new Tiles();
    this.tiles.addEventListener("pod", (event) => this.drawPodButtons(/** @type {CustomEvent} */ (event).detail));
    this.append(
      h("p", { class: "kind" }),
      h("h1", { text: decodeURIComponent(location.pathname.split("/")[3]) }),
      h(
        "div",
        { class: "verdict" },
        h("span", { class: "badge" }),
        h("p", { class: "sentence", text: "Loading" }),
        h("p", { class: "since", hidden: true }, "for ", h("time")),
      ),
      h("ul", { class: "also" }),
      h("p", { class: "fix" }),
      h("div", { class: "commands" }),
      h("div", { class: "buttons actions", role: "group", "aria-label": "Actions" }),
      h("p", { class: "outcome", role: "status" }),
      h("dl", { class: "facts" }),
      section("waits", "What it waits for", h("div", { class: "causes" })),
      section("steps", "Canary steps", h("ol", { class: "track" })),
      section("pods", "Pods", this.tiles),
      section("hooks", "Hooks", h("p", { class: "hint" }), h("div", { class: "runs" })),
      section("revisions", "Revisions", h("div", { class: "list" }), h("div", { class: "compare" })),
      section("events", "Events", h("ol", { class: "timeline" })),
    );
    for (const id of ["waits", "steps", "hooks", "events"]) find(this, `#${id}`).hidden = true;
    this.live = new Live(
      this.path,
      (change) => this.draw(change),
      (state, since, why) => {
        this.dispatchEvent(new CustomEvent("connection", { bubbles: true, detail: { state, since, why } }));
      },
    );
  }

  disconnectedCallback() {
    this.live?.close();
  }

  /** @param {import("./live.js").Change} change */
  draw(change) {
    if (!this.live) return;
    const { parts, rows } = this.live;
    const changed = change.parts;
    if (changed.has("head")) this.drawHead(parts.head);
    if (changed.has("actions") || changed.has("head") || changed.has("may")) this.drawActions(parts.actions ?? []);
    if (changed.has("causes")) this.drawCauses(parts.causes);
    if (changed.has("steps")) this.drawSteps(parts.steps);
    if (changed.has("runs") || changed.has("causes")) this.drawHooks(parts.runs ?? { shown: [], total: 0 });
    if (changed.has("revisions") || changed.has("may")) this.drawRevisions(parts.revisions ?? []);
    if (changed.has("events")) this.drawEvents(parts.events);
    if (change.reset) this.tiles?.reset(parts.revisions ?? [], rows);
    else if (change.rows.length || change.gone.length || changed.has("revisions"))
      this.tiles?.change(parts.revisions ?? [], change.rows, change.gone);
  }

  /** @param {any} head */
  drawHead(head) {
    setText(find(this, ".kind"), `${head.kind} in ${head.namespace}`);
    const badge = find(this, ".verdict .badge");
    setAttribute(badge, "class", `badge ${head.tone}`);
    setText(badge, head.word);
    setText(find(this, ".verdict .sentence"), head.sentence);
    find(this, ".verdict .since").hidden = head.since === null;
    setAge(find(this, ".verdict time"), head.since);
    reconcile(
      find(this, ".also"),
      head.also,
      (_, index) => String(index),
      () => h("li"),
      (element, text) => setText(element, `also: ${text}`),
    );
    setText(find(this, ".fix"), head.commands.length ? "" : head.fix);
    reconcile(find(this, ".commands"), head.commands, String, copyable, () => {});
    const counts = head.counts;
    const facts = [
      ["Ready", `${counts.ready} of ${counts.desired}`],
      ["Updated", `${counts.updated} of ${counts.desired}`],
      ["Guard", head.guard],
      ["Strategy", head.strategy],
      ["Hooks", head.hooks],
      ["Reserved", head.reserved && `ordinals ${head.reserved}`],
    ].filter(([, value]) => value);
    showFacts(find(this, ".facts"), facts);
    const spoken = `${head.shortName}: ${head.word}: ${head.timeless}`;
    if (spoken !== this.spoken && this.spoken !== "") announce(`${head.shortName}: ${head.word}: ${head.sentence}`);
    this.spoken = spoken;
  }

  /** @param {import("./actions.js").Action[]} actions */
  drawActions(actions) {
    const parts = this.live?.parts ?? {};
    const what = parts.head ? `${parts.head.shortName} in namespace ${parts.head.namespace}` : "";
    const group = find(this, ".actions");
    const all =
      parts.may?.workload && actions.length ? [...actions, { verb: "scale", label: "Scale", command: "" }] : actions;
    reconcile(
      group,
      all,
      (it) => it.verb,
      (it) => (it.verb === "scale" ? this.createScale() : h("button", { type: "button", text: it.label })),
      (element, it) => {
        const number = element.querySelector("input");
        if (number) number.placeholder = String(parts.head?.counts.desired ?? "");
        setAttribute(
          element,
          "class",
          it.verb === "scale" ? "scale" : it === all[0] && parts.head?.stopped ? "primary" : null,
        );
        if (it.verb !== "scale")
          element.onclick = () => confirm(this.path ?? "", it, what, (outcome) => this.tell(outcome));
      },
    );
    group.hidden = all.length === 0;
  }

  createScale() {
    const number = h("input", {
      type: "number",
      min: "0",
      max: "100000",
      step: "1",
      required: true,
      "aria-label": "Desired pods",
      inputmode: "numeric",
    });
    const form = h("form", { class: "scale" }, number, h("button", { type: "submit", text: "Scale" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const { head } = this.live?.parts ?? {};
      const replicas = Number(number.value);
      const command = `kubectl scale ${head.shortName} --replicas=${replicas} -n ${head.namespace}`;
      const what = `${head.shortName} in namespace ${head.namespace}, from ${counted(head.counts.desired, "pod")} to ${replicas}`;
      confirm(this.path ?? "", { verb: "scale", label: "Scale", command, replicas }, what, (outcome) =>
        this.tell(outcome),
      );
    });
    return form;
  }

  /** Says what an action did. @param {string} outcome */
  tell(outcome) {
    setText(find(this, ".outcome"), outcome);
  }

  /** @param {any[]} causes */
  drawCauses(causes) {
    find(this, "#waits").hidden = causes.length === 0;
    const key = (/** @type {any} */ it, /** @type {number} */ index) => `${it.word} ${index}`;
    const keys = causes.map(key);
    if (this.cause && !keys.includes(this.cause)) this.cause = "";
    reconcile(
      find(this, ".causes"),
      causes,
      key,
      () =>
        h(
          "button",
          { type: "button", class: "cause", "aria-pressed": "false" },
          h("span", { class: "who" }),
          h("span", { class: "sentence" }),
          h(
            "span",
            { class: "numbers" },
            h("span", { class: "count" }),
            h("span", { class: "longest" }, "for ", h("time")),
            h("span", { class: "next" }, "ends in ", h("time")),
          ),
        ),
      (element, it) => {
        const name = element.dataset.key ?? "";
        setAttribute(element, "class", `cause ${it.stopped ? "person" : ""}`);
        setText(find(element, ".who"), WHO[it.acts] ?? it.acts);
        setText(find(element, ".sentence"), it.sentence);
        const count = find(element, ".count");
        count.hidden = it.pods.length === 0;
        setText(count, counted(it.pods.length, "pod"));
        find(element, ".longest").hidden = it.since === null;
        setAge(find(element, ".longest time"), it.since);
        find(element, ".next").hidden = it.until === null;
        setAge(find(element, ".next time"), it.until, true);
        setAttribute(element, "aria-pressed", String(name === this.cause));
        element.onclick = () => this.selectCause(name === this.cause ? "" : name);
      },
    );
    this.applyCause(causes);
  }

  /** @param {string} name */
  selectCause(name) {
    this.cause = name;
    const parts = this.live?.parts ?? {};
    this.drawCauses(parts.causes ?? []);
    this.drawHooks(parts.runs ?? { shown: [], total: 0 });
  }

  /** @param {any[]} causes */
  applyCause(causes) {
    const index = causes.findIndex((it, i) => `${it.word} ${i}` === this.cause);
    const pods =
      index < 0 || causes[index].pods.length === 0 ? null : new Set(/** @type {string[]} */ (causes[index].pods));
    const text = pods ? [...pods].join(" ") : "";
    if (text === this.selectedPods) return;
    this.selectedPods = text;
    this.tiles?.select(pods);
    this.podsOfCause = pods;
  }

  /** @param {any[]} steps */
  drawSteps(steps) {
    find(this, "#steps").hidden = steps.length === 0;
    reconcile(
      find(this, ".track"),
      steps,
      (_, index) => String(index),
      () => h("li", {}, h("b"), h("span", { class: "state" }), h("span", { class: "since" }, "for ", h("time"))),
      (element, it) => {
        setAttribute(element, "class", it.state === "to come" ? "next" : it.state);
        setAttribute(element, "aria-current", it.state === "current" ? "step" : null);
        setText(find(element, "b"), it.name);
        setText(find(element, ".state"), it.state);
        find(element, ".since").hidden = it.since === null;
        setAge(find(element, "time"), it.since);
      },
    );
  }

  /** @param {{shown: any[], total: number}} runs */
  drawHooks(runs) {
    find(this, "#hooks").hidden = runs.total === 0;
    const pods = this.podsOfCause;
    const shown = pods ? runs.shown.filter((run) => pods.has(run.subject)) : runs.shown;
    const hint = find(this, "#hooks .hint");
    setText(
      hint,
      shown.length === runs.total
        ? ""
        : `${shown.length} of ${runs.total} are shown${pods ? ": those of the selected cause" : ""}.`,
    );
    hint.hidden = shown.length === runs.total;
    drawRuns(find(this, ".runs"), shown);
  }

  /** @param {any[]} revisions */
  drawRevisions(revisions) {
    const may = this.live?.parts.may?.workload;
    const list = find(this, "#revisions .list");
    reconcile(
      list,
      revisions,
      (it) => it.name,
      (it) =>
        h(
          "div",
          { class: "revision" },
          h("b", { text: `#${it.number}` }),
          h("span", { class: "role" }),
          h("code", { class: "images", text: it.images }),
          h("span", { class: "cause-text", text: it.cause ?? "" }),
          h("span", { class: "since" }, h("time"), " old"),
          h("span", { class: "buttons" }),
        ),
      (element, it) => {
        const role = find(element, ".role");
        setText(role, it.role || "old");
        setAttribute(role, "class", `role badge ${it.role === "update" ? "busy" : it.role ? "good" : "faint"}`);
        setAge(find(element, "time"), it.created);
        const canUndo = may && it.role !== "update" && it.role !== "current";
        reconcile(
          find(element, ".buttons"),
          canUndo ? ["undo"] : [],
          (verb) => verb,
          () => h("button", { type: "button", text: `Undo to #${it.number}` }),
          (button) => {
            button.onclick = () => this.undo(it.number);
          },
        );
      },
    );
    this.drawCompare(revisions);
  }

  /** @param {number} revision */
  undo(revision) {
    const { head } = this.live?.parts ?? {};
    const command = `kubectl game undo ${head.shortName} --to-revision ${revision} -n ${head.namespace}`;
    const what = `${head.shortName} in namespace ${head.namespace} gets the pod template of revision ${revision}`;
    confirm(this.path ?? "", { verb: "undo", label: "Undo", command, revision }, what, (outcome) => this.tell(outcome));
  }

  /** @param {any[]} revisions */
  drawCompare(revisions) {
    const compare = find(this, ".compare");
    const numbers = revisions.map((it) => it.number);
    if (numbers.length < 2) {
      compare.replaceChildren();
      return;
    }
    if (compare.dataset.numbers === String(numbers)) return;
    compare.dataset.numbers = String(numbers);
    const stable = revisions.find((it) => it.role === "stable")?.number ?? numbers[1];
    const pick = (/** @type {string} */ label, /** @type {number} */ chosen) => {
      const options = numbers.map((it) => h("option", { value: it, text: `#${it}`, selected: it === chosen }));
      return h("label", {}, `${label} `, h("select", { onchange: () => load() }, ...options));
    };
    const [from, to] = [pick("From", stable), pick("to", numbers[0])];
    const body = h("tbody");
    const hint = h("p", { class: "hint", role: "status" });
    const load = async () => {
      const [a, b] = [from, to].map((label) => /** @type {HTMLSelectElement} */ (label.querySelector("select")).value);
      const response = await fetch(`${this.path}/differences?from=${a}&to=${b}`);
      if (!response.ok) {
        setText(hint, await reason(response));
        return;
      }
      const found = await response.json();
      setText(
        hint,
        found.total === 0
          ? "Their pod templates are the same."
          : found.total > found.shown.length
            ? `${found.shown.length} of ${found.total} differences are shown.`
            : "",
      );
      body.replaceChildren(
        ...found.shown.map((/** @type {any} */ it) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, h("code", { text: it.path })),
            h("td", {}, h("del", { text: it.before ?? "" })),
            h("td", {}, h("ins", { text: it.after ?? "" })),
          ),
        ),
      );
    };
    compare.replaceChildren(
      h("h3", { text: "What differs" }),
      h("div", { class: "pick" }, from, " ", to),
      hint,
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "group", "aria-label": "Differences" },
        h(
          "table",
          { class: "plain" },
          h("thead", {}, h("tr", {}, ...["Field", "Before", "After"].map((text) => h("th", { scope: "col", text })))),
          body,
        ),
      ),
    );
    load();
  }

  /** @param {any[]} events */
  drawEvents(events) {
    find(this, "#events").hidden = events.length === 0;
    reconcile(
      find(this, ".timeline"),
      events,
      (it, index) => `${it.at} ${it.reason} ${index}`,
      (it) =>
        h(
          "li",
          { class: it.type === "Warning" ? "warning" : "normal" },
          h("span", { class: "since" }, h("time"), " ago"),
          h("b", { text: it.reason }),
          h("span", { class: "message" }),
        ),
      (element, it) => {
        setAge(find(element, "time"), it.at);
        setText(find(element, ".message"), it.count > 1 ? `${it.message} (${it.count} times)` : it.message);
      },
    );
  }

  /** The actions on the pod whose line is open. @param {{name: string, row: any, buttons: HTMLElement}} pod */
  drawPodButtons({ name, row, buttons }) {
    const { head, may } = this.live?.parts ?? {};
    const verbs = may?.pods ? (row[2] ? ["move", "release"] : ["move"]) : [];
    const texts = /** @type {Record<string, string>} */ ({
      move: `${name} is replaced as soon as its hook allows that.`,
      release: `${name} loses its guard: it may be deleted without its hook, and a match on it may end.`,
    });
    reconcile(
      buttons,
      verbs,
      (verb) => verb,
      (verb) => h("button", { type: "button", text: verb === "move" ? "Move" : "Release" }),
      (button, verb) => {
        const command = `kubectl game ${verb} pod/${name} -n ${head.namespace}`;
        const action = { verb, label: verb === "move" ? "Move" : "Release", command, pod: name };
        button.onclick = () => confirm(this.path ?? "", action, texts[verb], (outcome) => this.tell(outcome));
      },
    );
  }
}

const WHO = /** @type {Record<string, string>} */ ({
  you: "You act",
  "the game": "The game acts",
  "the node": "The node acts",
  nobody: "Nobody has to act",
});

customElements.define("game-workload", Workload);
