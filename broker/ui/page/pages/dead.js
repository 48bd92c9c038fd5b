// Dead letters of a topic, by the kind or the text of their last failure.
import {
  change, counted, get, html, Loaded, number, Pager, Table, Tag, timed, topicPath, useApp,
  useLive,
} from "../parts/all.js";
import { Bulk } from "./bulk.js";
import { Replay } from "./message.js";
import { fill, MessageTable } from "./messages.js";

const LIMIT = 100;
const choose = (cause = "", reason = "", begin = "") => ({ cause, reason, reason_prefix: begin });

export function Dead({ names: { ns, topic }, query }) {
  const { session, show, follows } = useApp();
  const { group = "", cursor = "", cause, reason = "", reason_prefix: prefix = "", exact = "" } = query;
  // What consumers said may quote the message: without the right, only the causes are known.
  const mayRead = session.may("bodies", ns, topic, group || "default");
  const within = exact && mayRead ? { exact, ...(prefix && { cause, reason_prefix: prefix }) } : {};
  const reasons = useLive((signal) => get(topicPath(ns, topic, "dead", "reasons"), { group, ...within }, signal),
    [ns, topic, group, exact, prefix, cause]);
  // What a row of the table chooses; null: no filter can tell its letters from others.
  const choiceOf = ({ cause: how, texts, reason: text, reason_prefix: begin }) => {
    if (!mayRead) return choose(how);
    if (texts > 1) return begin && choose(how, "", begin);
    return choose(how, text ?? "", exact && prefix);
  };
  const isChosen = (choice) => choice.cause === cause && choice.reason === reason && choice.reason_prefix === prefix;
  const failed = cause ? { cause, ...(mayRead && (reason ? { reason } : { reason_prefix: prefix })) } : {};
  const unsaid = cause && mayRead && !reason && !prefix && (({ failures }) => !failures.at(-1)?.reason);
  const found = useLive((signal) => fill(topicPath(ns, topic, "dead"), { group, cursor, history: false, ...failed }, LIMIT, signal, unsaid),
    [ns, topic, group, cursor, cause, reason, prefix]);
  const mayChange = !follows && session.may("change", ns, topic);
  const which = cause ? "these" : "all";
  const all = (action) => show((close) => html`<${Bulk} ns=${ns} topic=${topic} action=${action} query=${{ group, cause, reason: null, ...failed, ...(unsaid && { reason: "" }), state: "dead" }} onClose=${close} />`);
  const one = (id) => show((close) => html`<${Replay} ns=${ns} topic=${topic} id=${id} onClose=${close} onDone=${found.refresh} />`);
  const more = [
    { title: "Last failure", cell: ({ reason: why, failures }) => html`<span class="why">${mayRead && why}</span> ${
      failures.slice(-1).map((each) => html`<${Tag}>${each.cause.replace("_", " ")}</${Tag}>`)}` },
    { title: "Died of", cell: (letter) => letter.cause },
    ...(mayChange ? [{ title: "Do", cell: ({ id }) => html`<button type="button" class="small" aria-label=${`Replay ${id}`}
      onClick=${() => one(id)}>Replay…</button>` }] : []),
  ];
  const said = (each) => (mayRead ? each.reason ?? "no reason given" : "reasons need the right bodies");
  const chooser = (each) => {
    const choice = choiceOf(each);
    if (!choice) return html`<span class="why">${said(each)}</span>`;
    const chosen = isChosen(choice);
    return html`<button type="button" class="small why" aria-pressed=${chosen}
      onClick=${() => change({ ...(chosen ? choose() : choice), cursor: "" })}>${said(each)}</button>`;
  };
  return html`${mayChange && html`<div class="bar"><button type="button" class="main" onClick=${() => all("replay")}>Replay ${which}…</button>
      <button type="button" class="danger" onClick=${() => all("cancel")}>Remove ${which}…</button></div>`}
    <section aria-labelledby="reasons"><h2 id="reasons">By reason</h2>
      ${mayRead && html`<button type="button" aria-pressed=${Boolean(exact)}
        onClick=${() => change({ exact: exact ? "" : "true", ...(exact && { reason: "" }) })}>Exact texts</button>`}
      <${Loaded} of=${reasons}>${({ reasons: rows, rest, other }) => html`<${Table} caption="Reasons of the last failures"
          rows=${rows} keyOf=${(each) => `${each.cause} ${each.reason}`} empty="No failure is known." columns=${[
          { title: "Reason", cell: (each) => html`${chooser(each)} <${Tag}>${each.cause.replace("_", " ")}</${Tag}>` },
          ...(exact || !mayRead ? [] : [counted("Texts", "texts")]),
          counted("Letters", "count"),
          counted("Consumers", "consumers"),
          timed("Last", "last_ms")]} />
          ${rest > 0 && html`<p>For other reasons: <strong>${number(rest)}</strong></p>`}
          ${other > 0 && html`<p>Without a failure that is kept: <strong>${number(other)}</strong></p>`}`}</${Loaded}></section>
    <section aria-labelledby="letters"><h2 id="letters">Letters${cause && html`: ${said({ reason: reason || (prefix && `${prefix}…`) || null })}`}</h2>
    <${Loaded} of=${found}>${({ messages, cursor: next }) => html`
      <${MessageTable} ns=${ns} topic=${topic} group=${group} messages=${messages} more=${more} />
      <${Pager} at=${["topics", ns, topic, "dead"]} query=${query} next=${next} />`}</${Loaded}></section>`;
}
