// Dead letters of a topic: by the reason of their last failure, replayed one by one, or all at a rate.
import {
  change, counted, get, html, Loaded, number, Pager, Table, Tag, timed, topicPath, useApp,
  useLive,
} from "../parts/all.js";
import { Bulk } from "./bulk.js";
import { Replay } from "./message.js";
import { fill, MessageTable } from "./messages.js";

const LIMIT = 100;

export function Dead({ names: { ns, topic }, query }) {
  const { session, show, follows } = useApp();
  const { group = "", cursor = "", cause, reason = "" } = query;
  // What consumers said may quote the message: without the right, only the causes are known.
  const mayRead = session.may("bodies", ns, topic, group || "default");
  const reasons = useLive((signal) => get(topicPath(ns, topic, "dead", "reasons"), { group }, signal),
    [ns, topic, group]);
  const isChosen = (each) => each?.cause === cause && (!mayRead || (each.reason ?? "") === reason);
  const found = useLive((signal) => fill(topicPath(ns, topic, "dead"), { group, cursor, history: false }, LIMIT, signal, cause && (({ failures }) => isChosen(failures.at(-1)))),
    [ns, topic, group, cursor, cause, reason]);
  const mayChange = !follows && session.may("change", ns, topic);
  const which = cause ? "these" : "all";
  const all = (action) => show((close) => html`<${Bulk} ns=${ns} topic=${topic} action=${action} query=${{ ...query, reason: mayRead ? reason : null, state: "dead" }} onClose=${close} />`);
  const one = (id) => show((close) => html`<${Replay} ns=${ns} topic=${topic} id=${id} onClose=${close} onDone=${found.refresh} />`);
  const more = [
    { title: "Last failure", cell: ({ reason: why, failures }) => html`<span class="why">${mayRead && why}</span> ${
      failures.slice(-1).map((each) => html`<${Tag}>${each.cause.replace("_", " ")}</${Tag}>`)}` },
    { title: "Died of", cell: (letter) => letter.cause },
    ...(mayChange ? [{ title: "Do", cell: ({ id }) => html`<button type="button" class="small" aria-label=${`Replay ${id}`}
      onClick=${() => one(id)}>Replay…</button>` }] : []),
  ];
  const said = (each) => (mayRead ? each.reason ?? "no reason given" : "reasons need the right bodies");
  return html`${mayChange && html`<div class="bar"><button type="button" class="main" onClick=${() => all("replay")}>Replay ${which}…</button>
      <button type="button" class="danger" onClick=${() => all("cancel")}>Remove ${which}…</button></div>`}
    <section aria-labelledby="reasons"><h2 id="reasons">By reason</h2>
      <${Loaded} of=${reasons}>${({ reasons: rows, other }) => html`<${Table} caption="Reasons of the last failures"
          rows=${rows} keyOf=${(each) => `${each.cause} ${each.reason}`} empty="No failure is known." columns=${[
          { title: "Reason", cell: (each) => html`<button type="button" class="small why" aria-pressed=${isChosen(each)}
            onClick=${() => change(isChosen(each) ? { cause: "", reason: "", cursor: "" } : { cause: each.cause, reason: each.reason, cursor: "" })}>${
              said(each)}</button> <${Tag}>${each.cause.replace("_", " ")}</${Tag}>` },
          counted("Letters", "count"),
          counted("Consumers", "consumers"),
          timed("Last", "last_ms")]} />
          ${other > 0 && html`<p>Without a failure that is kept: <strong>${number(other)}</strong></p>`}`}</${Loaded}></section>
    <section aria-labelledby="letters"><h2 id="letters">Letters${cause && html`: ${said({ reason: reason || null })}`}</h2>
    <${Loaded} of=${found}>${({ messages, cursor: next }) => html`
      <${MessageTable} ns=${ns} topic=${topic} group=${group} messages=${messages} more=${more} />
      <${Pager} at=${["topics", ns, topic, "dead"]} query=${query} next=${next} />`}</${Loaded}></section>`;
}
