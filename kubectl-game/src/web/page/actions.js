// @ts-check
// Changes: a dialog says what will be done, as the command that does the same, and then what was done.

import { find, h, setText } from "./elements.js";
import { reason, send } from "./session.js";

/** @typedef {{verb: string, label: string, command: string, pod?: string, revision?: number, replicas?: number}} Action */

/**
 * Asks, and does what was confirmed.
 * @param {string} path @param {Action} action @param {string} what @param {(outcome: string) => void} done
 */
export function confirm(path, action, what, done) {
  const dialog = h(
    "dialog",
    { class: "confirm", "aria-labelledby": "confirm-title" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "confirm-title", text: `${action.label}?` }),
      h("p", { text: what }),
      h("p", {}, h("code", { text: action.command })),
      h("p", { class: "refusal", role: "alert", hidden: true }),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: "cancel", text: "Cancel", onclick: () => dialog.close() }),
        h("button", { type: "submit", class: "primary", text: action.label }),
      ),
    ),
  );
  dialog.addEventListener("close", () => dialog.remove());
  find(dialog, "form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement} */ (find(dialog, ".primary"));
    button.disabled = true;
    const { verb, pod, revision, replicas } = action;
    try {
      const response = await send(path, { verb, pod, revision, replicas });
      if (!response.ok) return refuse(await reason(response));
      const { outcome, note } = await response.json();
      dialog.close();
      done(note ? `${outcome}. Note: ${note}` : outcome);
    } catch {
      refuse("the server cannot be reached");
    }
    /** @param {string} why */
    function refuse(why) {
      const refusal = find(dialog, ".refusal");
      refusal.hidden = false;
      setText(refusal, why);
      button.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  find(dialog, ".primary").focus();
}

/** A command after the words that lead to it, with a button that copies it. @param {[string, string]} command */
export function copyable([lead, command]) {
  const button = h("button", { type: "button", class: "copy", text: "Copy", "aria-label": `Copy: ${command}` });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      setText(button, "Copied");
    } catch {
      setText(button, "Select it");
    }
    window.setTimeout(() => setText(button, "Copy"), 2000);
  });
  const line = h("div", { class: "command" }, h("code", { text: command }), button);
  return h("div", {}, h("p", { class: "lead", text: lead }), line);
}
