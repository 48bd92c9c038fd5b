// Charts in SVG. Their numbers are in tables beside them.
import { html } from "../core/view.js";
import { isUtc, length, stamp, useZone, ZONE } from "../core/time.js";
import { counted, Table } from "./table.js";
import { number, Time } from "./values.js";

const WIDTH = 600;
const HEIGHT = 120;
const DASHES = ["", "8 4", "2 3"];

const SECONDS_MS = 600_000;

/** Below a chart: the first and last time, with seconds if they are near each other. */
function Ends({ from, to }) {
  useZone();
  const short = (ms) => stamp(ms).slice(5, to - from < SECONDS_MS ? 19 : 16);
  return html`<p class="ends"><span>${short(from)}</span><span>${isUtc() ? "UTC" : ZONE}</span><span>${short(to)}</span></p>`;
}

/** The frame of a chart: its largest value, and its times. */
function Plot({ label, max, from, to, children }) {
  return html`<figure class="chart"><figcaption>${label} <span class="far">up to ${number(max)}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${label}>${children}</svg>
    <${Ends} from=${from} to=${to} /></figure>`;
}

/** @param {{label: string, slots: Array<{from_ms: number, count: number}>}} props */
function Bars({ label, slots }) {
  const max = Math.max(...slots.map(({ count }) => Number(count)), 1);
  const most = slots.findIndex(({ count }) => count > 0 && Number(count) === max);
  const wide = WIDTH / slots.length;
  return html`<${Plot} label=${label} max=${max} from=${slots[0].from_ms} to=${slots.at(-1).from_ms}>${slots.map(({ from_ms: ms, count }, at) => {
    // A count above zero stays visible beside the largest one.
    const high = count ? Math.max((Number(count) / max) * HEIGHT, 2) : 0;
    return html`<g key=${ms}><title>${`${stamp(ms)}: ${number(count)}`}</title>
      <rect x=${at * wide} y="0" width=${wide} height=${HEIGHT} class="room" />
      <rect x=${at * wide + wide * 0.1} y=${HEIGHT - high} width=${wide * 0.8} height=${high} class=${at === most ? "most" : ""} /></g>`;
  })}</${Plot}>`;
}

/** @param {{label: string, names: string[], points: Array<{ms: number, values: number[]}>}} props */
export function Lines({ label, names, points }) {
  const max = Math.max(...points.flatMap(({ values }) => values), 1);
  const from = points[0].ms;
  const span = Math.max(points.at(-1).ms - from, 1);
  const line = (at) => points.map(({ ms, values }) =>
    `${((ms - from) / span) * WIDTH},${HEIGHT - (values[at] / max) * (HEIGHT - 4) - 2}`).join(" ");
  return html`<${Plot} label=${label} max=${max} from=${from} to=${points.at(-1).ms}>${names.map((name, at) => html`
    <polyline key=${name} points=${line(at)} class=${`line-${at}`} stroke-dasharray=${DASHES[at]} />`)}</${Plot}>
    <ul class="legend">${names.map((name, at) => html`<li key=${name}><svg viewBox="0 0 30 8" aria-hidden="true">
      <line x1="0" x2="30" y1="4" y2="4" class=${`line-${at}`} stroke-dasharray=${DASHES[at]} /></svg> ${name}: <b>${number(points.at(-1).values[at])}</b></li>`)}</ul>`;
}

/** The slot with the most messages; null if there are none. */
const busiest = (slots) =>
  slots.reduce((most, each) => (each.count > (most?.count ?? 0) ? each : most), null);

/** Load to come: bars, the busiest slot named, all numbers as a table. */
export function Slots({ label, slots }) {
  useZone();
  if (slots.length === 0) return null;
  const most = busiest(slots);
  const filled = slots.filter(({ count, firings }) => count > 0 || firings > 0);
  return html`<div class="slots"><${Bars} label=${label} slots=${slots} />
    <p>${most ? html`Busiest: <strong>${number(most.count)}</strong> from <${Time} ms=${most.from_ms} distance />`
      : "Nothing is due in this time."}</p>
    ${filled.length > 0 && html`<details><summary>The numbers</summary>
      <${Table} caption=${label} rows=${filled} keyOf=${({ from_ms: ms }) => ms} columns=${[
        { title: "From", cell: ({ from_ms: ms }) => stamp(ms) },
        counted("Messages", "count"),
        ...(slots[0].firings === undefined ? [] : [counted("And firings", "firings")])]} /></details>`}</div>`;
}

const ROW = 14;
const MINUTE_MS = 60_000;
const COLUMNS = 90;

/** Lateness as a map: a column for each minute that the broker has kept, a row for each bucket. */
export function Heat({ of: { bounds_ms: bounds, minutes } }) {
  const newest = minutes.at(-1);
  if (!newest) return null;
  const lengths = bounds.map(length);
  const names = [...lengths.map((each) => `up to ${each}`), "more"];
  const most = Math.max(...minutes.flatMap(({ counts }) => counts), 1);
  const wide = WIDTH / COLUMNS;
  const at = (ms) => COLUMNS - 1 - (newest.from_ms - ms) / MINUTE_MS;
  return html`<section aria-labelledby="lateness"><h2 id="lateness">Lateness</h2>
    <figure class="chart heat"><figcaption>Handed out, by minute and lateness <span class="far">up to the figure at the left</span></figcaption>
    <ol aria-hidden="true">${["more", ...lengths.reverse()].map((each) => html`<li key=${each}>${each}</li>`)}</ol>
    <svg viewBox=${`0 0 ${WIDTH} ${names.length * ROW}`} preserveAspectRatio="none" role="img" aria-label="Lateness over time: the newest numbers are in the table">
      ${minutes.map(({ from_ms: ms, counts }) => counts.map((count, y) => count > 0 && html`<rect key=${`${ms} ${y}`}
        x=${at(ms) * wide} y=${(names.length - 1 - y) * ROW} width=${wide - 0.5} height=${ROW - 1}
        fill-opacity=${0.15 + 0.85 * (Math.log1p(count) / Math.log1p(most))}><title>${`${stamp(ms)}, ${names[y]}: ${number(count)}`}</title></rect>`))}</svg>
    <${Ends} from=${newest.from_ms - (COLUMNS - 1) * MINUTE_MS} to=${newest.from_ms} /></figure>
    <details><summary>The minute from ${stamp(newest.from_ms)}</summary><${Table} caption="Lateness of the last minute" keyOf=${(name) => name}
      rows=${names} columns=${[
        { title: "Late", cell: (name) => name },
        { title: "Messages", number: true, cell: (name) => number(newest.counts[names.indexOf(name)]) }]} /></details></section>`;
}
