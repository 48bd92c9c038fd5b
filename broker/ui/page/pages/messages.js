// The messages of a topic, by id or filter, a page at a time; bodies are not read.
import {
  change, counted, Failure, Field, get, go, html, link, Loaded, number, Pager, parseTime,
  State, STATES, Table, timed, topicPath, useApp, useLive, useState,
} from "../parts/all.js";
import { Bulk } from "./bulk.js";

const LIMIT = 50;
const ASKED_MAX = 20;

/** The filter of a list, from the query of the link. Times may be relative: `+1h`. */
export function filterOf({ state = "", due_from: from = "", due_to: to = "", tag = "", key }) {
  return { state, due_from: parseTime(from), due_to: parseTime(to), tag, key };
}

export function Messages({ names: { ns, topic }, query }) {
  const { session, show, follows } = useApp();
  const { group = "", cursor = "" } = query;
  let filter = {};
  let wrong = null;
  try {
    filter = filterOf(query);
  } catch (error) {
    wrong = error;
  }
  const path = topicPath(ns, topic, "messages");
  const found = useLive((signal) => fill(path, { ...filter, group, cursor }, LIMIT, signal),
    [path, JSON.stringify(query)]);
  const bulk = (action) => show((close) => html`<${Bulk} ns=${ns} topic=${topic} action=${action} query=${query} onClose=${close} />`);
  const mayChange = !follows && session.may("change", ns, topic);
  return html`<${Search} ns=${ns} topic=${topic} query=${query} key=${JSON.stringify(query)} />
    <${Failure} error=${wrong} />
    ${mayChange && html`<div class="bar" role="group" aria-label="With all messages that match">
      <span>All that match:</span>
      <button type="button" onClick=${() => bulk("reschedule")}>Reschedule…</button>
      <button type="button" onClick=${() => bulk("replay")}>Replay…</button>
      <button type="button" class="danger" onClick=${() => bulk("cancel")}>Cancel…</button></div>`}
    <${Loaded} of=${found}>${({ messages, cursor: next, whole }) => html`
      <${MessageTable} ns=${ns} topic=${topic} group=${group} messages=${messages} />
      ${!whole && html`<p role="status">Nothing more found yet; there is more to search.</p>`}
      <${Pager} at=${["topics", ns, topic, "messages"]} query=${query} next=${next}>${number(messages.length)} shown, in due order</${Pager}>`}</${Loaded}>`;
}

export function MessageTable({ ns, topic, group, messages, more = [] }) {
  const columns = [
    { title: "Id", cell: ({ id }) => html`<a class="id" href=${link(["topics", ns, topic, "messages", id], { group })}>${id}</a>` },
    { title: "State", cell: ({ state }) => html`<${State} of=${state} />` },
    timed("Due", "deliver_at_ms"),
    { title: "Attempts", number: true, cell: ({ attempts, max_retry: max }) => `${number(attempts)} of ${number(Number(max) + 1)}` },
    counted("Priority", "priority"),
    { title: "Key", cell: ({ key }) => key && html`<a href=${link(["topics", ns, topic, "messages"], { group, key })}>${key}</a>` },
    { title: "Tags", cell: ({ tags }) => tags.map((tag) => html`<a class="tag" key=${tag} href=${link(["topics", ns, topic, "messages"], { group, tag })}>${tag}</a> `) },
    ...more,
  ];
  return html`<${Table} caption="Messages" columns=${columns} rows=${messages} keyOf=${({ id, sent_at_ms: ms }) => `${id} ${ms}`}
    empty="No message matches." />`;
}

function Search({ ns, topic, query }) {
  const { group = "" } = query;
  const [id, setId] = useState("");
  const [given, setGiven] = useState(query);
  const states = new Set((given.state ?? "").split(",").filter(Boolean));
  const set = (name) => (value) => setGiven({ ...given, [name]: value });
  const toggle = (state) => {
    if (states.has(state)) states.delete(state);
    else states.add(state);
    set("state")([...states].join(","));
  };
  const byId = (event) => {
    event.preventDefault();
    if (id.trim()) go(link(["topics", ns, topic, "messages", id.trim()], { group }));
  };
  const byFilter = (event) => {
    event.preventDefault();
    const { state = "", due_from: from = "", due_to: to = "", tag = "", key = "" } = given;
    change({ state, due_from: from.trim(), due_to: to.trim(), tag, key, cursor: "" }, { replace: false });
  };
  return html`<form class="bar" onSubmit=${byId}><${Field} label="Message id" value=${id} onInput=${setId} />
      <button type="submit">Open</button></form>
    <form class="bar" role="search" aria-label="Filter" onSubmit=${byFilter}>
      <fieldset><legend>States</legend>${STATES.map((state) => html`<label key=${state}>
        <input type="checkbox" checked=${states.has(state)} onChange=${() => toggle(state)} /> <${State} of=${state} /></label> `)}</fieldset>
      <${Field} label="Due from" value=${given.due_from ?? ""} onInput=${set("due_from")} placeholder="-1h" />
      <${Field} label="Due before" value=${given.due_to ?? ""} onInput=${set("due_to")} placeholder="+1h" />
      <${Field} label="Tag" value=${given.tag ?? ""} onInput=${set("tag")} />
      <${Field} label="Key" value=${given.key ?? ""} onInput=${set("key")} />
      <button type="submit" class="main">Filter</button></form>`;
}

/**
 * One page of at most `limit` messages behind a cursor. An empty page with a cursor means that the
 * broker has searched for 50 ms and found nothing yet.
 * @param {(message: any) => boolean} [wanted] chooses among the messages; all, if absent
 * @returns {Promise<{messages: any[], cursor: string | null, whole: boolean}>}
 *   `whole`: false if it gave up before the page was full; the cursor goes on from there
 */
export async function fill(path, query, limit, signal, wanted) {
  const messages = [];
  let { cursor = "" } = query;
  for (let asked = 0; asked < ASKED_MAX; asked += 1) {
    const page = await get(path, { ...query, cursor, limit: wanted ? limit : limit - messages.length }, signal);
    messages.push(...(wanted ? page.messages.filter(wanted) : page.messages));
    cursor = page.cursor;
    if (cursor === null || messages.length >= limit) {
      return { messages, cursor, whole: true };
    }
  }
  return { messages, cursor, whole: false };
}
