// @ts-check
// The stream that keeps a page current, and what is known of the connection.

import { isKnown } from "./session.js";

/**
 * @typedef {{parts: Set<string>, rows: string[], gone: string[], reset: boolean}} Change
 * @typedef {{since: number, why: string}} Outage
 * @typedef {"connecting" | "live" | "lost" | "ended" | "failed"} State
 */

/** A stream is taken for lost if it is silent for this long; the server sends something every five seconds. */
const SILENCE = 12000;
const RETRY = 2000;

export class Live {
  /**
   * @param {string} path
   * @param {(change: Change) => void} onChange
   * @param {(state: State, since: number | null, why: string) => void} onState
   */
  constructor(path, onChange, onState) {
    this.path = path;
    this.onChange = onChange;
    this.onState = onState;
    /** @type {Record<string, any>} */
    this.parts = {};
    /** @type {Map<string, any>} */
    this.rows = new Map();
    this.lastContact = Date.now() / 1000;
    this.watchdog = window.setInterval(() => this.check(), 1000);
    this.retry = 0;
    this.isClosed = false;
    this.open();
  }

  open() {
    const source = new EventSource(this.path);
    this.source = source;
    source.onmessage = (event) => {
      if (this.source === source) this.receive(JSON.parse(event.data));
    };
    source.onerror = () => {
      if (this.source === source) this.lose();
    };
  }

  close() {
    this.isClosed = true;
    window.clearInterval(this.watchdog);
    window.clearTimeout(this.retry);
    this.source?.close();
  }

  check() {
    if (this.source && Date.now() / 1000 - this.lastContact > SILENCE / 1000) this.lose();
  }

  /** Connects again, until that works or the session has ended. */
  lose() {
    this.source?.close();
    this.source = undefined;
    if (!this.hasFailed) this.onState("lost", this.lastContact, "");
    window.clearTimeout(this.retry);
    this.retry = window.setTimeout(async () => {
      const state = await isKnown();
      if (this.isClosed) return;
      if (state === false) {
        this.onState("ended", this.lastContact, "");
        return;
      }
      if (state === true) this.open();
      else this.lose();
    }, RETRY);
  }

  /** @param {any} message */
  receive(message) {
    this.lastContact = Date.now() / 1000;
    if (message.error !== undefined || message.deleted) {
      this.hasFailed = true;
      this.onState("failed", null, message.error ?? "");
      return;
    }
    if (message.outage) {
      this.onState("lost", message.outage.since, message.outage.why);
      this.isBehind = true;
    } else if (message.outage === null) {
      this.isBehind = false;
    }
    if (message.reset) {
      this.rows.clear();
      this.isBehind = false;
      this.hasFailed = false;
    }
    Object.assign(this.parts, message.parts);
    const rows = message.rows ?? [];
    for (const [key, row] of rows) this.rows.set(key, row);
    for (const key of message.gone ?? []) this.rows.delete(key);
    if (!this.isBehind && !this.hasFailed && Object.keys(this.parts).length > 0) this.onState("live", null, "");
    const parts = new Set(Object.keys(message.parts ?? {}));
    const keys = rows.map((/** @type {[string, any]} */ [key]) => key);
    if (parts.size || keys.length || message.gone) {
      this.onChange({ parts, rows: keys, gone: message.gone ?? [], reset: Boolean(message.reset) });
    }
  }
}
