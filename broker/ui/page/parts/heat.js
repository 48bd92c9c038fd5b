// Lateness as a map: a column for each minute that the broker has kept, a row for each bucket.
import { html } from "../core/view.js";
import { length, stamp } from "../core/time.js";
import { Ends } from "./chart.js";
import { Table } from "./table.js";
import { number } from "./values.js";

const WIDTH = 600;
const ROW = 14;
const MINUTE_MS = 60_000;
const COLUMNS = 90;

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
