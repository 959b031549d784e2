// @ts-check
// The entry: begins the session, shows the page that the address names, and says whether it is current.

import { announce, find, freezeAges, h, refreshAges, setAttribute, setText } from "./elements.js";
import { bringsToken, enter, isKnown, reason, send } from "./session.js";
import "./fleet.js";
import "./workload.js";

const main = find(document, "#main");

/** Shows the page that the address names. */
function show() {
  const parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  const place = find(document, "#place");
  setText(place, parts.length === 3 ? `${parts[0]} / ${parts[2]}` : (parts.slice(-1)[0] ?? ""));
  document.title = parts.length ? `${parts[parts.length - 1]} · Gamekeeper` : "Gamekeeper";
  const name = parts.length === 3 ? "game-workload" : parts.length === 2 ? "game-single" : "game-fleet";
  main.replaceChildren(document.createElement(name));
}

/** Says why there is no page. @param {string} why */
function refuse(why) {
  setText(find(document, "#connection"), "");
  main.replaceChildren(
    h("h1", { text: "No session" }),
    h("p", { text: `${why[0].toUpperCase()}${why.slice(1)}.` }),
    h("p", {}, "Run ", h("code", { text: "kubectl game view" }), " and open the address that it prints."),
  );
}

/** Asks for a token, and shows the page once the API server accepts it. */
function ask() {
  setText(find(document, "#connection"), "");
  const token = h("input", { type: "password", id: "token", required: true, autocomplete: "off", spellcheck: "false" });
  const refusal = h("p", { class: "refusal", role: "alert", hidden: true });
  const form = h(
    "form",
    { class: "token" },
    h("label", { for: "token", text: "Token" }),
    token,
    h("button", { type: "submit", class: "primary", text: "Show the page" }),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const response = await send("/session", { token: token.value });
    if (response.ok) return show();
    refusal.hidden = false;
    setText(refusal, await reason(response));
  });
  main.replaceChildren(
    h("h1", { text: "Who are you?" }),
    h("p", { text: "This server has no permissions. It shows what your own token may list, and keeps no token." }),
    h("p", {}, "A token for a service account: ", h("code", { text: "kubectl create token NAME -n NAMESPACE" })),
    form,
    refusal,
  );
}

main.addEventListener("connection", (event) => {
  const { state, since, why } = /** @type {CustomEvent} */ (event).detail;
  const banner = find(document, "#banner");
  const connection = find(document, "#connection");
  setAttribute(connection, "class", `connection ${state}`);
  setText(connection, state === "live" ? "live" : state === "lost" ? "not current" : state);
  const at = since === null ? "" : new Date(since * 1000).toLocaleTimeString(undefined, { hour12: false });
  const messages = /** @type {Record<string, string>} */ ({
    lost: `No connection since ${at}.${why ? ` ${why}` : ""} What you see is the last known state.`,
    ended: `The server has ended. What you see is the state of ${at}. Run kubectl game view again.`,
    failed: why || "It was deleted.",
  });
  const message = messages[state] ?? "";
  banner.hidden = message === "";
  setText(banner, message);
  freezeAges(state === "lost" || state === "ended" ? since : null);
});

// Links within the page load no new document.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || link.origin !== location.origin || link.hash || link.target) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  show();
  main.focus();
  announce(document.title);
});
window.addEventListener("popstate", show);
window.setInterval(refreshAges, 1000);

const refused = await enter();
if (refused !== null) refuse(refused);
else if (await isKnown()) show();
else if (await bringsToken()) ask();
else refuse("this browser has no session with the server");
