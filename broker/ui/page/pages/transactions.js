// Transactions: open ones, those being published, and the newest that ended.
import { html } from "../core/view.js";
import { get } from "../core/api.js";
import { useApp } from "../core/context.js";
import { useLive } from "../core/live.js";
import { Loaded } from "../parts/failure.js";
import { Table } from "../parts/table.js";
import { bytes, number, Tag, Time } from "../parts/values.js";
import { Change } from "./topic-changes.js";

const TONES = { open: "", committed: "good", aborted: "warn", expired: "warn" };

export function Transactions() {
  const { session, show, follows } = useApp();
  const found = useLive((signal) => get("/v1/transactions", { limit: 100 }, signal), []);
  const may = !follows && session.maySomewhere("send");
  const abort = (id) => show((close) => html`<${Change} danger title=${`Abort ${id}`} verb="Abort it" onClose=${close} onDone=${found.refresh}
    request=${() => ({ method: "POST", path: `/v1/transactions/${encodeURIComponent(id)}/abort`, body: {} })} done=${`${id} is aborted.`}>
    <p>All that was staged in it is discarded.</p></${Change}>`);
  return html`<h1 tabindex="-1">Transactions</h1>
    <${Loaded} of=${found}>${({ transactions, counts }) => html`
      <p>${number(counts.open)} open, ${number(counts.publishing)} being published, ${number(counts.ended)} ended.</p>
      <${Table} caption="Transactions" rows=${transactions} keyOf=${({ transaction }) => transaction} empty="There are no transactions." columns=${[
        { name: "id", title: "Transaction", cell: ({ transaction }) => html`<code>${transaction}</code>` },
        { name: "state", title: "State", cell: ({ state }) => html`<${Tag} tone=${TONES[state]}>${state}</${Tag}>` },
        { name: "rows", title: "Rows", number: true, cell: ({ rows }) => number(rows) },
        { name: "published", title: "Published", number: true, cell: ({ published }) => number(published) },
        { name: "parts", title: "Parts", number: true, cell: ({ parts }) => number(parts) },
        { name: "bytes", title: "Size", number: true, cell: ({ bytes: size }) => bytes(size) },
        { name: "expires", title: "Expires", cell: ({ expires_at_ms: ms }) => html`<${Time} ms=${ms} distance />` },
        { name: "decided", title: "Decided", cell: ({ decided_at_ms: ms }) => html`<${Time} ms=${ms} distance />` },
        ...(may ? [{ name: "do", title: "Do", cell: ({ transaction, state }) => state === "open" && html`<button type="button"
          class="small danger" aria-label=${`Abort ${transaction}`} onClick=${() => abort(transaction)}>Abort</button>` }] : [])]} />`}</${Loaded}>`;
}
