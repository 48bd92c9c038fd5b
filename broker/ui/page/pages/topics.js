// All topics: searched and sorted by the broker, so that thousands of them cost a page.
import {
  change, get, go, html, link, Loaded, number, Pager, State, Table, Tag, topicPath, useApp,
  useEffect, useLive, useState,
} from "../parts/all.js";
import { NewTopic } from "./topic-changes.js";

const LIMIT = 100;
const SORTED = ["waiting", "ready", "leased", "dead"];
const TYPED_MS = 250;

export function Topics({ query }) {
  const { ns = "default", q = "", sort = "name", cursor = "" } = query;
  const [text, setText] = useState(q);
  const { session, show } = useApp();
  useEffect(() => {
    const timer = setTimeout(() => text !== q && change({ q: text, cursor: "" }), TYPED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  // Links lead to other searches.
  useEffect(() => setText(q), [q]);
  const found = useLive(
    (signal) => get(topicPath(ns), { limit: LIMIT, contains: q, sort, cursor }, signal),
    [ns, q, sort, cursor]);
  const columns = [
    { title: "Topic", sort: "name", cell: ({ topic }) => html`<a href=${link(["topics", ns, topic])}>${topic}</a>` },
    { title: "", cell: ({ paused, erasing }) => html`${paused && html`<${Tag} tone="warn">paused</${Tag}>`} ${
      erasing && html`<${Tag} tone="warn">erasing</${Tag}>`}` },
    ...SORTED.map((name) => ({
      title: html`<${State} of=${name} />`, sort: name, number: true,
      cell: ({ counts }) => number(counts[name]),
    })),
    { title: "Groups", number: true, cell: ({ groups }) => number(groups.length) },
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
    <${Loaded} of=${found}>${({ topics, cursor: next }) => html`
      <${Table} caption=${`Topics of ${ns}`} columns=${columns} rows=${topics} keyOf=${({ topic }) => topic}
        empty=${q ? "No topic has a name with this." : "There are no topics yet."}
        sort=${{ by: sort, up: sort === "name" }} onSort=${(by) => change({ sort: by === "name" ? "" : by, cursor: "" })} />
      <${Pager} at=${["topics"]} query=${query} next=${next} />`}</${Loaded}>`;
}
