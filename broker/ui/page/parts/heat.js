// How late messages are handed out, over the time that somebody looks: a column for each reading of
// the broker's histogram, a row for each of its bounds. The darker, the more messages.
import { html, useEffect, useState } from "../core/view.js";
import { call } from "../core/api.js";
import { useLive } from "../core/live.js";
import { brokerNow, length, stamp } from "../core/time.js";
import { Table } from "./table.js";
import { number } from "./values.js";

const EVERY_MS = 10_000;
const COLUMNS_MAX = 90;
const WIDTH = 600;
const ROW = 14;
const SAMPLE = /^delaylog_lateness_seconds_bucket\{(?:[^"}]*"(?:[^"\\]|\\.)*")*?,?le="([^"]+)"\} (\S+)/gm;

/** Messages by the upper bound of their lateness in seconds, of all topics. Raises without any. */
export function histogram(text) {
  const sums = new Map();
  for (const [, bound, count] of text.matchAll(SAMPLE)) {
    const above = bound === "+Inf" ? Infinity : Number(bound);
    sums.set(above, (sums.get(above) ?? 0) + Number(count));
  }
  // As a refusal, after which nobody asks again.
  if (sums.size === 0) throw Object.assign(new Error("no histogram"), { status: 404 });
  const bounds = [...sums.keys()].sort((a, b) => a - b);
  const upTo = bounds.map((bound) => sums.get(bound));
  return { bounds, counts: upTo.map((count, at) => count - (upTo[at - 1] ?? 0)) };
}

const name = (bound) => (bound === Infinity ? "more" : `up to ${length(bound * 1_000)}`);

export function Heat() {
  const found = useLive(async (signal) => histogram(await call("GET", "/metrics", { signal })), [], { everyMs: EVERY_MS });
  const [seen, setSeen] = useState({ last: null, columns: [] });
  useEffect(() => {
    if (!found.data) return;
    const { counts } = found.data;
    setSeen(({ last, columns }) => ({
      last: counts,
      columns: last === null ? columns
        : [...columns, { ms: brokerNow(), counts: counts.map((count, at) => Math.max(count - last[at], 0)) }].slice(-COLUMNS_MAX),
    }));
  }, [found.data]);
  if (!found.data || seen.columns.length === 0) return null;
  const { bounds } = found.data;
  const most = Math.max(...seen.columns.flatMap(({ counts }) => counts), 1);
  const wide = WIDTH / Math.max(seen.columns.length, 12);
  const newest = seen.columns.at(-1);
  return html`<section aria-labelledby="lateness"><h2 id="lateness">Lateness</h2>
    <figure class="chart heat"><figcaption>Handed out, by lateness, since this page was opened</figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${bounds.length * ROW}`} preserveAspectRatio="none" role="img" aria-label="Lateness over time: the newest numbers are in the table">
      ${seen.columns.map(({ ms, counts }, x) => counts.map((count, y) => count > 0 && html`<rect key=${`${ms} ${y}`}
        x=${x * wide} y=${(bounds.length - 1 - y) * ROW} width=${wide - 0.5} height=${ROW - 1}
        fill-opacity=${0.15 + 0.85 * (Math.log1p(count) / Math.log1p(most))}><title>${`${stamp(ms)}, ${name(bounds[y])}: ${number(count)}`}</title></rect>`))}</svg></figure>
    <details><summary>The last ${EVERY_MS / 1_000} s</summary><${Table} caption="Lateness of the last seconds" keyOf=${({ bound }) => bound}
      rows=${bounds.map((bound, at) => ({ bound, count: newest.counts[at] }))} columns=${[
        { name: "bound", title: "Late", cell: ({ bound }) => name(bound) },
        { name: "count", title: "Messages", number: true, cell: ({ count }) => number(count) }]} /></details></section>`;
}
