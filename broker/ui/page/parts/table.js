// A table of rows, readable by screen readers and on narrow screens.
import { link } from "../core/router.js";
import { useApp } from "../core/session.js";
import { html } from "../core/view.js";
import { number, Time } from "./values.js";

/** A column of numbers, and one of times with their distance from now; `name`: the member. */
export const counted = (title, name) => ({ title, number: true, cell: (row) => number(row[name]) });
export const timed = (title, name) => ({ title, cell: (row) => html`<${Time} ms=${row[name]} distance />` });

/**
 * @param {{caption: string, columns: Array<{title: any, cell: Function, sort?: string,
 *   number?: boolean}>, rows: any[], keyOf: (row: any) => any, empty?: string,
 *   sort?: {by: string, up: boolean}, onSort?: (by: string) => void,
 *   partial?: boolean}} props `partial`: the broker leaves out what the caller may not read
 */
export function Table({ caption, columns, rows, keyOf, empty = "Nothing here.", sort, onSort, partial }) {
  const isPart = partial && !useApp().session.may("read", "", "");
  const heading = ({ title, sort: name, number: right }) => {
    const by = name && sort?.by === name;
    const aria = by ? (sort.up ? "ascending" : "descending") : undefined;
    return html`<th scope="col" class=${right && "number"} aria-sort=${aria}>${
      name
        ? html`<button type="button" onClick=${() => onSort(name)}>${title}<span aria-hidden="true">${
            by ? (sort.up ? " ▲" : " ▼") : ""}</span></button>`
        : title}</th>`;
  };
  return html`<div class="scroll" role="region" aria-label=${caption} tabindex="0"><table>
    <caption class="quiet">${caption}</caption>
    <thead><tr>${columns.map(heading)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map(({ cell, number: right }) => html`
      <td class=${right && "number"}>${cell(row)}</td>`)}</tr>`)}${
      rows.length === 0 && html`<tr><td colspan=${columns.length} class="none">${empty}${isPart && " What you may not read is left out."}</td></tr>`}</tbody>
  </table></div>`;
}

/** Pairs of names and values. Those without a value are left out. */
export const Facts = ({ of }) => html`<dl class="facts">${of
  .filter(([, value]) => value !== undefined)
  .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value ?? "–"}</dd></div>`)}</dl>`;

/** Links to the first and the next page of a list; `query`: of the place, with its `cursor`. */
export const Pager = ({ at, query, next, children }) => html`<p class="bar">${
  query.cursor && html`<a href=${link(at, { ...query, cursor: "" })}>First page</a>`}${
  next && html` <a href=${link(at, { ...query, cursor: next })}>Next page</a>`} ${children}</p>`;
