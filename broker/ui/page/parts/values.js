// How single values look: numbers, times, states, links to copy.
import { html, useState } from "../core/view.js";
import { isUtc, relative, stamp, useZone, ZONE } from "../core/time.js";

const EXACT = new Intl.NumberFormat("en");
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A whole number with all its digits. */
export const number = (value) =>
  value == null ? "–" : typeof value === "number" && !Number.isInteger(value)
    ? EXACT.format(Math.round(value * 10) / 10) : EXACT.format(value);

/** A size in the unit that suits it. */
export function bytes(value) {
  if (value == null) return "–";
  let size = Number(value);
  let at = 0;
  while (size >= 1024 && at < SIZES.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${at ? size.toFixed(1) : size} ${SIZES[at]}`;
}

/** A time in the chosen zone; its tooltip has the other zone and the distance from now. `full`: with
 *  all of that beside it. */
export function Time({ ms, distance, full }) {
  useZone();
  if (ms == null) return html`<span class="none">–</span>`;
  const other = isUtc() ? `${stamp(ms, { utc: false })} ${ZONE}` : `${stamp(ms, { utc: true })} UTC`;
  const at = new Date(Number(ms));
  const iso = Number.isNaN(at.getTime()) ? undefined : at.toISOString();
  return html`<time datetime=${iso} title=${`${other}, ${relative(ms)}`}>${stamp(ms)}${
    (distance || full) && html` <span class="far">${relative(ms)}</span>`}</time>${
    full && html`<br /><small>${other}<br />${ms} ms</small>`}`;
}

/** The mark of each state, so that none is told by its colour alone. */
export const MARKS = {
  waiting: "◷", ready: "▶", leased: "⇄", acked: "✓", expired: "⌛", dead: "✕", cancelled: "⌫", replaced: "⇆",
};
export const STATES = Object.keys(MARKS);

export const State = ({ of }) =>
  html`<span class=${`state ${of}`}><span aria-hidden="true">${MARKS[of] ?? "•"}</span> ${of}</span>`;

/** A word with a tone: good, bad, warn or nothing. */
export const Tag = ({ tone = "", children }) => html`<span class=${`tag ${tone}`}>${children}</span>`;

/** The numbers of a topic or group by state. */
export const Counts = ({ counts }) => html`<dl class="counts">${STATES.map((state) => html`
  <div key=${state}><dt><${State} of=${state} /></dt><dd>${number(counts[state])}</dd></div>`)}</dl>`;

/** Copy a text, also over plain HTTP, where pages have no clipboard to write to. */
async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState("");
  const act = async () => {
    try {
      await copy(text);
      setDone("Copied");
    } catch {
      setDone("Not copied: select the text");
    }
    setTimeout(() => setDone(""), 2_000);
  };
  return html`<button type="button" class="small" onClick=${act} title=${text}>${label}</button>
    <span role="status">${done}</span>`;
}
