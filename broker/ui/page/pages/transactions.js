// Transactions, open and newly ended, and the open claims of a topic.
import {
  Ask, bytes, counted, get, html, Loaded, number, Table, Tag, timed, topicPath, useApp, useLive,
} from "../parts/all.js";

const TONES = { open: "", committed: "good", aborted: "warn", expired: "warn" };

export function Transactions() {
  const { session, show, follows } = useApp();
  const found = useLive((signal) => get("/v1/transactions", { limit: 100 }, signal), []);
  const may = !follows && session.maySomewhere("send");
  const abort = (id) => show((close) => html`<${Ask} danger title=${`Abort ${id}`} verb="Abort it" onClose=${close} onDone=${found.refresh}
    request=${() => ({ method: "POST", path: `/v1/transactions/${encodeURIComponent(id)}/abort`, body: {} })} done=${`${id} is aborted.`}>
    <p>All that was staged in it is discarded.</p></${Ask}>`);
  return html`<h1 tabindex="-1">Transactions</h1>
    <${Loaded} of=${found}>${({ transactions, counts }) => html`
      <p>${number(counts.open)} open, ${number(counts.publishing)} being published, ${number(counts.ended)} ended.</p>
      <${Table} caption="Transactions" partial rows=${transactions} keyOf=${({ transaction }) => transaction} empty="There are no transactions." columns=${[
        { title: "Transaction", cell: ({ transaction }) => html`<code>${transaction}</code>` },
        { title: "State", cell: ({ state }) => html`<${Tag} tone=${TONES[state]}>${state}</${Tag}>` },
        counted("Rows", "rows"),
        counted("Published", "published"),
        counted("Parts", "parts"),
        { title: "Size", number: true, cell: ({ bytes: size }) => bytes(size) },
        timed("Expires", "expires_at_ms"),
        timed("Decided", "decided_at_ms"),
        ...(may ? [{ title: "Do", cell: ({ transaction, state }) => state === "open" && html`<button type="button"
          class="small danger" aria-label=${`Abort ${transaction}`} onClick=${() => abort(transaction)}>Abort</button>` }] : [])]} />`}</${Loaded}>`;
}

export function Claims({ names: { ns, topic } }) {
  const found = useLive((signal) => get(topicPath(ns, topic, "claims"), {}, signal), [ns, topic]);
  return html`<${Loaded} of=${found}>${({ claims }) => html`<${Table} caption="Claims" partial rows=${claims} keyOf=${({ claim, group }) => `${group} ${claim}`}
      empty="There are no open claims." columns=${[
        { title: "Claim", cell: ({ claim }) => claim },
        { title: "Group", cell: ({ group }) => group },
        { title: "State", cell: ({ state }) => html`<${Tag}>${state}</${Tag}>` },
        counted("Messages", "n"),
        timed("Leased until", "lease_until_ms")]} />`}</${Loaded}>`;
}
