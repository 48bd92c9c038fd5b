// A table of rows: sortable where the page says so, readable by screen readers, scrolled by itself
// on narrow screens.
import { html } from "../core/view.js";

/**
 * @param {{caption: string, columns: Array<{name: string, title: string, cell: Function,
 *   sort?: boolean, number?: boolean}>, rows: any[], keyOf: (row: any) => any, empty?: string,
 *   sort?: {by: string, up: boolean}, onSort?: (by: string) => void}} props
 */
export function Table({ caption, columns, rows, keyOf, empty = "Nothing here.", sort, onSort }) {
  const heading = ({ name, title, sort: sorts, number }) => {
    const by = sort?.by === name;
    const aria = by ? (sort.up ? "ascending" : "descending") : undefined;
    return html`<th scope="col" key=${name} class=${number && "number"} aria-sort=${aria}>${
      sorts && onSort
        ? html`<button type="button" onClick=${() => onSort(name)}>${title}<span aria-hidden="true">${
            by ? (sort.up ? " ▲" : " ▼") : ""}</span></button>`
        : title}</th>`;
  };
  return html`<div class="scroll" role="region" aria-label=${caption} tabindex="0"><table>
    <caption class="quiet">${caption}</caption>
    <thead><tr>${columns.map(heading)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map(({ name, cell, number }) => html`
      <td key=${name} class=${number && "number"}>${cell(row)}</td>`)}</tr>`)}${
      rows.length === 0 && html`<tr><td colspan=${columns.length} class="none">${empty}</td></tr>`}</tbody>
  </table></div>`;
}

/** Pairs of names and values. Those without a value are left out. */
export const Facts = ({ of }) => html`<dl class="facts">${of
  .filter(([, value]) => value !== undefined)
  .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value ?? "–"}</dd></div>`)}</dl>`;
