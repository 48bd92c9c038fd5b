// One message.
import {
  Ask, Copy, DueField, Facts, get, html, length, link, Loaded, number, parseTime, stamp, State, Tag,
  Time, topicPath, useApp, useLive, useRef, useState, write,
} from "../parts/all.js";
import { Body } from "../parts/body.js";
import { Waits } from "../parts/late.js";
import { LifeLine, Steps } from "../parts/lifeline.js";

/** Steps are read from the log: when the message has changed, else this often. */
const LIFE_MS = 30_000;
const CHANGEABLE = new Set(["waiting", "ready"]);
const LIVING = new Set([...CHANGEABLE, "leased"]);

export function Message({ names: { ns, topic, id }, query: { group = "" } }) {
  const { session, show, follows } = useApp();
  const path = topicPath(ns, topic, "messages", id);
  const mayRead = session.may("bodies", ns, topic, group || "default");
  const kept = useRef({}).current;
  const found = useLive(async (signal) => {
    const message = await get(path, { group, body: false }, signal);
    // A body may be large: it is read once a message.
    if (kept.own?.sent_at_ms !== message.sent_at_ms) kept.own = await get(path, { group });
    const { headers, backoff, body, body_base64 } = kept.own;
    const mark = write([group, message.state, message.attempts, message.deliver_at_ms, message.lease_until_ms, Math.floor(Date.now() / LIFE_MS)]);
    if (mark !== kept.mark) {
      const { life, life_complete, waits } = await get(path, { group, body: false, life: true });
      Object.assign(kept, { mark, life: { life: mayRead ? life : life.map(({ reason, ...step }) => step), life_complete, waits } });
    }
    return { ...message, headers, backoff, body, body_base64, ...kept.life };
  }, [path, group]);
  const mayChange = !follows && session.may("change", ns, topic);
  const ask = (Dialog, more) => show((close) => html`<${Dialog} ns=${ns} topic=${topic} id=${id} path=${path}
    onClose=${close} onDone=${found.refresh} ...${more} />`);
  return html`<h2>Message <span class="id">${id}</span></h2>
    <${Loaded} of=${found}>${(message) => html`
      <div class="bar"><${State} of=${message.state} />${message.cause && message.state !== "leased" && html`<${Tag} tone="warn">${message.cause}</${Tag}>`}
        ${mayChange && CHANGEABLE.has(message.state) && html`
          <button type="button" onClick=${() => ask(NewTime, { due: message.deliver_at_ms })}>Change the due time</button>
          <button type="button" class="danger" onClick=${() => ask(Cancel, { state: message.state })}>Cancel</button>`}
        ${mayChange && message.state === "leased" && html`
          <button type="button" class="danger" onClick=${() => ask(Cancel, { state: message.state })}>Cancel</button>`}
        ${mayChange && message.state === "dead" && html`
          <button type="button" onClick=${() => ask(Replay)}>Replay</button>
          <button type="button" class="danger" onClick=${() => ask(Cancel, { state: message.state })}>Remove</button>`}
        <${Copy} text=${location.href} label="Copy the link" /></div>
      <section aria-labelledby="life"><h3 id="life">Life</h3>
        <${LifeLine} steps=${message.life ?? []} waits=${message.waits} complete=${message.life_complete}
          lives=${LIVING.has(message.state)} /></section>
      <${Waits} waits=${message.waits} since=${message.state === "ready" ? message.life?.at(-1)?.at_ms : null} ns=${ns} topic=${topic} group=${group} />
      ${message.failures?.length > 0 && html`<section aria-labelledby="failures"><h3 id="failures">Failures</h3>
        <${Steps} of=${message.failures.map((each) => ({ event: "failed", ...each }))} /></section>`}
      <section aria-labelledby="facts"><h3 id="facts">Facts</h3><${Facts} of=${facts(message, { ns, topic, group, mayRead })} /></section>
      <section aria-labelledby="body"><h3 id="body">Body</h3>${!mayRead
        ? html`<p>You lack the right bodies for this topic.</p>` : html`<${Body} of=${message} />`}</section>
    `}</${Loaded}>`;
}

const both = (ms) => ms == null ? undefined : html`<${Time} ms=${ms} full />`;

function facts(message, { ns, topic, group, mayRead }) {
  const { headers, backoff } = message;
  // A retry or a change has a later due time.
  const first = message.life?.[0]?.due_ms ?? message.deliver_at_ms;
  return [
    ["Due", both(message.deliver_at_ms)],
    ["Sent", both(message.sent_at_ms)],
    ["Delay", length(Number(first) - Number(message.sent_at_ms))],
    ["Leased until", message.lease_until_ms && both(message.lease_until_ms)],
    ["Consumer", message.consumer || undefined],
    ["Ended", message.ended_at_ms && both(message.ended_at_ms)],
    ["Expires", message.expires_at_ms == null ? "never" : both(message.expires_at_ms)],
    ["Attempts", `${number(message.attempts)} of ${number(Number(message.max_retry) + 1)}`],
    ["Last failure", (mayRead && message.reason) || undefined],
    ["Priority", number(message.priority)],
    ["Key", message.key == null ? undefined : html`<a href=${link(["topics", ns, topic, "messages"], { group, key: message.key })}>${message.key}</a>`],
    ["Tags", message.tags?.length ? message.tags.join(", ") : undefined],
    ["Headers", headers && Object.keys(headers).length ? Object.entries(headers).map(([name, value]) => html`<code key=${name}>${name}: ${value}</code><br />`) : undefined],
    ["Own backoff", backoff ? JSON.stringify(backoff) : undefined],
  ];
}

function NewTime({ id, path, due, onClose, onDone }) {
  const [text, setText] = useState(stamp(due));
  const request = () => {
    const at = parseTime(text);
    if (at == null) return null;
    return { method: "PATCH", path, body: text.trim() === "now" ? { delay_ms: 0 } : { deliver_at_ms: at } };
  };
  return html`<${Ask} title=${`Due time of ${id}`} verb="Change it" request=${request} onClose=${onClose} onDone=${onDone} done="The due time is changed.">
    <${DueField} value=${text} onInput=${setText} /><p>It is due then in all groups.</p></${Ask}>`;
}

function Cancel({ id, path, state, onClose, onDone }) {
  const force = state === "leased" || state === "dead";
  const request = () => ({ method: "DELETE", path: force ? `${path}?force=true` : path });
  return html`<${Ask} danger title=${state === "dead" ? `Remove ${id}` : `Cancel ${id}`} verb=${state === "dead" ? "Remove it" : "Cancel it"}
    request=${request} onClose=${onClose} onDone=${onDone} done="The message is cancelled.">
    <p>${state === "leased" ? "A consumer has it now; it may have done its work." : "Nobody gets it."} It ends in all groups${
      force && ", also where it is leased or dead"}. This cannot be undone.</p></${Ask}>`;
}

export function Replay({ ns, topic, id, onClose, onDone }) {
  const [due, setDue] = useState("now");
  const request = () => {
    const at = parseTime(due || "now");
    return { method: "POST", path: topicPath(ns, topic, "messages:replay"),
      body: { ids: [id], ...(due.trim() !== "now" && { deliver_at_ms: at }) } };
  };
  return html`<${Ask} title=${`Replay ${id}`} verb="Replay" request=${request} onClose=${onClose} onDone=${onDone}
    done=${({ results: [{ result }] }) => (result === "done" ? "It is due again." : `Not replayed: ${result}.`)}>
    <p>It becomes due again in all groups where it is dead, with no attempts and its full lifetime.</p>
    <${DueField} value=${due} onInput=${setDue} /></${Ask}>`;
}
