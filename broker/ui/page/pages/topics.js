// All topics, searched and sorted by the broker.
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
      cell: ({ counts, groups }) => number(groups.includes("default") ? counts[name] : null),
    })),
    { title: "Groups", number: true, cell: ({ groups }) => number(groups.length) },
  ];
  const apart = session.grants.filter((each) => each.topic !== "*" && !session.may("read", each.ns, each.topic));
  const open = (of, topic) => html`<a href=${link(["topics", of, topic])}>${topic}</a> `;
  const mayMake = session.maySomewhere("admin");
  return html`<h1 tabindex="-1">Topics</h1>
    <form class="bar" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label for="search">Search</label>
      <input id="search" type="search" value=${text} placeholder="part of a name" onInput=${(event) => setText(event.target.value)} />
      <label for="ns">Namespace</label>
      <input id="ns" class="narrow" value=${ns} onChange=${(event) => go(link(["topics"], { ns: event.target.value }))} />
      ${mayMake && html`<button type="button" onClick=${() => show((close) => html`<${NewTopic} ns=${ns} onClose=${close} />`)}>New topic</button>`}
    </form>
    ${apart.length > 0 && html`<p role="note">You may not read all of these topics, so they are not in the list: ${apart.map(({ ns: of, topic }) => (`${of}${topic}`.includes("*") ? `${of}/${topic} ` : open(of, topic)))}${q && open(ns, q)}</p>`}
    <p class="quiet">Numbers are those of default groups. A topic's page has its other groups.</p>
    <${Loaded} of=${found}>${({ topics, cursor: next }) => html`
      <${Table} caption=${`Topics of ${ns}`} columns=${columns} partial rows=${topics} keyOf=${({ topic }) => topic}
        empty=${q ? "No topic has a name with this." : "There are no topics yet."}
        sort=${{ by: sort, up: sort === "name" }} onSort=${(by) => change({ sort: by === "name" ? "" : by, cursor: "" })} />
      <${Pager} at=${["topics"]} query=${query} next=${next} />`}</${Loaded}>`;
}
