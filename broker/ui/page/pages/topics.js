// All topics: searched and sorted by the broker, so that thousands of them cost a page.
import { html, useEffect, useState } from "../core/view.js";
import { get, topicPath } from "../core/api.js";
import { change, go, link } from "../core/router.js";
import { useLive } from "../core/live.js";
import { useApp } from "../core/context.js";
import { Loaded } from "../parts/failure.js";
import { Table } from "../parts/table.js";
import { number, State, Tag } from "../parts/values.js";
import { NewTopic } from "./topic-changes.js";

const LIMIT = 100;
const SORTED = ["waiting", "ready", "leased", "dead"];
const TYPED_MS = 250;

export function Topics({ query }) {
  const { ns = "default", q = "", sort = "name", after = "" } = query;
  const [text, setText] = useState(q);
  const { session, show } = useApp();
  useEffect(() => {
    const timer = setTimeout(() => text !== q && change({ q: text, after: "" }), TYPED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  // Links lead to other searches.
  useEffect(() => setText(q), [q]);
  const found = useLive(
    (signal) => get(topicPath(ns), { limit: LIMIT, contains: q, sort, cursor: after }, signal),
    [ns, q, sort, after]);
  const columns = [
    { name: "name", title: "Topic", sort: true, cell: ({ topic }) => html`<a href=${link(["topics", ns, topic])}>${topic}</a>` },
    { name: "about", title: "", cell: ({ paused, erasing }) => html`${paused && html`<${Tag} tone="warn">paused</${Tag}>`} ${
      erasing && html`<${Tag} tone="warn">erasing</${Tag}>`}` },
    ...SORTED.map((name) => ({
      name, title: html`<${State} of=${name} />`, sort: true, number: true,
      cell: ({ counts }) => number(counts[name]),
    })),
    { name: "groups", title: "Groups", number: true, cell: ({ groups }) => number(groups.length) },
  ];
  const mayMake = session.maySomewhere("admin");
  return html`<h1 tabindex="-1">Topics</h1>
    <form class="bar" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label for="search">Search</label>
      <input id="search" type="search" value=${text} placeholder="part of a name" onInput=${(event) => setText(event.target.value)} />
      <label for="ns">Namespace</label>
      <input id="ns" class="narrow" value=${ns} onChange=${(event) => go(link(["topics"], { ns: event.target.value }))} />
      ${mayMake && html`<button type="button" onClick=${() => show((close) => html`<${NewTopic} ns=${ns} onClose=${close} />`)}>New topic</button>`}
    </form>
    <${Loaded} of=${found}>${({ topics, cursor }) => html`
      <${Table} caption=${`Topics of ${ns}`} columns=${columns} rows=${topics} keyOf=${({ topic }) => topic}
        empty=${q ? "No topic has a name with this." : "There are no topics yet."}
        sort=${{ by: sort, up: sort === "name" }} onSort=${(by) => change({ sort: by === "name" ? "" : by, after: "" })} />
      <p class="bar">${after && html`<a href=${link(["topics"], { ns, q, sort })}>First page</a>`}
        ${cursor && html`<a href=${link(["topics"], { ns, q, sort, after: cursor })}>Next page</a>`}</p>`}</${Loaded}>`;
}
