// Charts in SVG: bars for counts by time, lines for rates. Their numbers are in tables beside them.
import { html } from "../core/view.js";
import { isUtc, stamp, useZone, ZONE } from "../core/time.js";
import { number } from "./values.js";

const WIDTH = 600;
const HEIGHT = 120;
const DASHES = ["", "8 4", "2 3"];

const SECONDS_MS = 600_000;

/** Below a chart: the first and last time, with seconds if they are near each other. */
export function Ends({ from, to }) {
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
export function Bars({ label, slots }) {
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
