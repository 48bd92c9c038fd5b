// Load to come: bars, the busiest slot named, all numbers as a table.
import { html } from "../core/view.js";
import { stamp, useZone } from "../core/time.js";
import { Bars } from "./chart.js";
import { counted, Table } from "./table.js";
import { number, Time } from "./values.js";

/** The slot with the most messages; null if there are none. */
const busiest = (slots) =>
  slots.reduce((most, each) => (each.count > (most?.count ?? 0) ? each : most), null);

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
