// @ts-check
// The session: the one-time token in the address becomes a cookie, and leaves the address at once.

/** Begins the session if the address has a token. Returns why it could not, if it could not. @returns {Promise<string | null>} */
export async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return null;
  history.replaceState(null, "", location.pathname + location.search);
  const response = await send("/session", { token });
  // An address that is opened again works as long as the browser still has the session.
  if (response.ok || (await isKnown())) return null;
  return reason(response);
}

/** Whether the browser has a session; null if the server does not answer. @returns {Promise<boolean | null>} */
export async function isKnown() {
  try {
    const response = await fetch("/api/session");
    return response.ok;
  } catch {
    return null;
  }
}

/** Whether visitors bring a token of their own. @returns {Promise<boolean>} */
export async function bringsToken() {
  const response = await fetch("/api/session");
  return !response.ok && (await response.json()).bringToken === true;
}

/** Sends JSON. @param {string} path @param {unknown} body */
export function send(path, body) {
  const headers = { "content-type": "application/json" };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
}

/** What a refusal says. @param {Response} response @returns {Promise<string>} */
export async function reason(response) {
  try {
    const { error } = await response.json();
    return typeof error === "string" ? error : `the server answered ${response.status}`;
  } catch {
    return `the server answered ${response.status}`;
  }
}
