// The body of a message: shown when asked for, JSON indented without touching its numbers.
import { html, useState } from "../core/view.js";
import { pretty } from "../core/json.js";
import { bytes, Copy, Tag } from "./values.js";

const SHOWN_MAX = 200_000;

function decoded({ body, body_base64: packed }) {
  if (body != null) return { text: body, kind: "text", size: new TextEncoder().encode(body).length };
  const raw = atob(packed);
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, 4_096); at += 16) {
    const part = [...raw.slice(at, at + 16)].map((each) => each.charCodeAt(0));
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const plain = part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${plain}`);
  }
  return { text: lines.join("\n"), kind: "bytes", size: raw.length };
}

export function Body({ of }) {
  const [shown, setShown] = useState(false);
  const [raw, setRaw] = useState(false);
  if (of.body == null && of.body_base64 == null) return null;
  const { text, kind, size } = decoded(of);
  if (!shown) {
    return html`<p><button type="button" onClick=${() => setShown(true)}>Show the body</button> ${bytes(size)}</p>`;
  }
  const indented = kind === "text" ? pretty(text) : null;
  const whole = raw || indented === null ? text : indented;
  return html`<div><p>
      <${Tag}>${indented === null ? kind : "JSON"}</${Tag}> ${bytes(size)}
      ${indented !== null && html` <button type="button" class="small" onClick=${() => setRaw(!raw)}>${
        raw ? "Indent" : "As it was sent"}</button>`}
      ${kind === "text" && html` <${Copy} text=${text} label="Copy the body" />`}</p>
    <pre tabindex="0" aria-label="Body">${whole.slice(0, SHOWN_MAX)}</pre>
    ${whole.length > SHOWN_MAX && html`<p>The first ${SHOWN_MAX} characters are shown.</p>`}</div>`;
}
