// The keys that work on this page.
import { html } from "../core/view.js";
import { bindings } from "../core/keys.js";
import { Dialog } from "./dialog.js";

export const Help = ({ onClose }) => html`<${Dialog} title="Keys" onClose=${onClose}>
  <dl class="keys">${bindings().map(([keys, doc]) => html`<div key=${keys}><dt><kbd>${keys}</kbd></dt><dd>${doc}</dd></div>`)}</dl>
  <button type="button" class="main" onClick=${onClose}>Close</button></${Dialog}>`;
