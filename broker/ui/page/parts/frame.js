// What is around each page.
import { html, useEffect, useState } from "../core/view.js";
import { calls, curlOf, onCalls } from "../core/api.js";
import { bindings } from "../core/keys.js";
import { setLive, useIsLive } from "../core/live.js";
import { isUtc, setUtc, stamp, useZone, ZONE } from "../core/time.js";
import { Dialog } from "./dialog.js";
import { Copy } from "./values.js";

export function Menu({ pages, at, session }) {
  // Targets are of the whole broker.
  const may = (right) => (right === "admin" ? session.may(right, "", "") : session.maySomewhere(right));
  const shown = pages.filter(({ menu, right }) => menu && (!right || may(right)));
  return html`<nav aria-label="Pages" class="menu">${shown.map(({ path, menu }) => html`
    <a key=${path} href=${`#${path}`} aria-current=${at === path ? "page" : undefined}>${menu}</a>`)}</nav>`;
}

export function Clock({ clock }) {
  const utc = useZone();
  return html`<button type="button" onClick=${() => setUtc(!isUtc())} title="Switch the zone of all times (z)">
    ${clock ? stamp(clock.now_ms).slice(0, 19) : "…"} <span>${utc ? "UTC" : ZONE}</span></button>`;
}

export function Live() {
  const on = useIsLive();
  return html`<button type="button" aria-pressed=${on} onClick=${() => setLive(!on)} title="Read again and again while this page is visible (l)">
    <span aria-hidden="true">${on ? "●" : "‖"}</span> ${on ? "Live" : "Paused"}</button>`;
}

/** The calls of this page, each as a command line. */
export function Calls({ needsToken }) {
  const [list, setList] = useState(calls());
  useEffect(() => {
    onCalls(() => setList(calls()));
    return () => onCalls(() => {});
  }, []);
  return html`<details class="calls"><summary>Calls of this page (${list.length})</summary><ul>${list.map((each) => html`
    <li key=${each.method + each.url}><code>${each.method} ${each.url}</code> <${Copy} label="Copy as curl" text=${curlOf(each, needsToken)} /></li>`)}</ul></details>`;
}

/** The keys that work on this page. */
export const Help = ({ onClose }) => html`<${Dialog} title="Keys" onClose=${onClose}>
  <dl class="keys">${bindings().map(([keys, doc]) => html`<div key=${keys}><dt><kbd>${keys}</kbd></dt><dd>${doc}</dd></div>`)}</dl>
  <button type="button" class="main" onClick=${onClose}>Close</button></${Dialog}>`;
