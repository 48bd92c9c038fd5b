// Dead letters of a topic: grouped by reason, replayed one by one, or all at a rate.
import { html, useState } from "../core/view.js";
import { topicPath } from "../core/api.js";
import { useApp } from "../core/context.js";
import { useLive } from "../core/live.js";
import { fill } from "../core/pages-of.js";
import { link } from "../core/router.js";
import { Loaded } from "../parts/failure.js";
import { Table } from "../parts/table.js";
import { TopicHead } from "../parts/topic-head.js";
import { number, Tag } from "../parts/values.js";
import { Bulk } from "./bulk.js";
import { Replay } from "./message.js";
import { MessageTable } from "./messages.js";

const LIMIT = 100;
const reasonOf = ({ reason, cause }) => reason || cause || "no reason given";

export function Dead({ names: { ns, topic }, query }) {
  const { session, show, follows } = useApp();
  const { group = "", cursor = "" } = query;
  const [only, setOnly] = useState(null);
  const found = useLive((signal) => fill(topicPath(ns, topic, "dead"), { group, cursor, history: false }, LIMIT, signal),
    [ns, topic, group, cursor], { everyMs: 5_000 });
  const mayChange = !follows && session.may("change", ns, topic);
  const all = (action) => show((close) => html`<${Bulk} ns=${ns} topic=${topic} action=${action} query=${{ state: "dead" }} onClose=${close} />`);
  const one = (id) => show((close) => html`<${Replay} ns=${ns} topic=${topic} id=${id} onClose=${close} onDone=${found.refresh} />`);
  const more = [
    { name: "reason", title: "Why", cell: (letter) => html`${reasonOf(letter)} ${letter.reason && html`<${Tag}>${letter.cause}</${Tag}>`}` },
    ...(mayChange ? [{ name: "do", title: "Do", cell: ({ id }) => html`<button type="button" class="small" aria-label=${`Replay ${id}`}
      onClick=${() => one(id)}>Replay…</button>` }] : []),
  ];
  return html`<${TopicHead} ns=${ns} topic=${topic} at=${["dead"]} group=${group} />
    ${mayChange && html`<div class="bar"><button type="button" class="main" onClick=${() => all("replay")}>Replay all…</button>
      <button type="button" class="danger" onClick=${() => all("cancel")}>Remove all…</button></div>`}
    <${Loaded} of=${found}>${({ messages, cursor: next }) => {
      const reasons = new Map();
      for (const each of messages) reasons.set(reasonOf(each), (reasons.get(reasonOf(each)) ?? 0) + 1);
      const shown = only === null ? messages : messages.filter((each) => reasonOf(each) === only);
      return html`<section aria-labelledby="reasons"><h2 id="reasons">By reason</h2>
        <${Table} caption="Reasons of the letters on this page" rows=${[...reasons].sort((a, b) => b[1] - a[1])} keyOf=${([reason]) => reason}
          empty="There are no dead letters." columns=${[
            { name: "reason", title: "Reason", cell: ([reason]) => html`<button type="button" class="small" aria-pressed=${only === reason}
              onClick=${() => setOnly(only === reason ? null : reason)}>${reason}</button>` },
            { name: "count", title: "Letters", number: true, cell: ([, count]) => number(count) }]} /></section>
        <section aria-labelledby="letters"><h2 id="letters">Letters${only !== null && html`: ${only}`}</h2>
        <${MessageTable} ns=${ns} topic=${topic} group=${group} messages=${shown} more=${more} />
        <p class="bar">${cursor && html`<a href=${link(["topics", ns, topic, "dead"], { group })}>First page</a>`}
          ${next && html`<a href=${link(["topics", ns, topic, "dead"], { group, cursor: next })}>Next page</a>`}</p></section>`;
    }}</${Loaded}>`;
}
