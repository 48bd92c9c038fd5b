// One topic: its states, rates, consumers, groups, settings, and its load to come.
import {
  brokerNow, counted, Counts, Facts, get, html, link, Loaded, number, relative, Table, Tag, Time,
  topicPath, useApp, useLive, write,
} from "../parts/all.js";
import { Slots } from "../parts/chart.js";
import { Cause } from "../parts/late.js";
import { Drop, NewGroup, Pause, Purge, Send, Setting } from "./topic-changes.js";

/** It shows what the caller may read, and says what it leaves out. */
export function Topic({ names: { ns, topic }, query: { group }, groups }) {
  const { session, show, follows } = useApp();
  const path = topicPath(ns, topic);
  const mayRead = session.may("read", ns, topic, group || "default");
  const found = useLive(async (signal) => {
    // A topic may have no group at all.
    const [about, stats] = await Promise.all([
      session.may("read", ns, topic) && get(path, {}, signal),
      groups.length > 0 && mayRead && get(`${path}/stats`, { group, delay_buckets: false }, signal)]);
    return { about, stats };
  }, [ns, topic, group, groups.length > 0]);
  const may = (right, of) => !follows && session.may(right, ns, topic, of);
  const ask = (Dialog, more) => show((close) => html`<${Dialog} ns=${ns} topic=${topic} onClose=${close}
    onDone=${found.refresh} ...${more} />`);
  return html`<${Loaded} of=${found}>${({ about, stats }) => html`
      <div class="bar">
        ${about.paused && html`<${Tag} tone="warn">paused</${Tag}>`}
        ${may("send") && html`<button type="button" onClick=${() => ask(Send)}>Send a message</button>`}
        ${may("change") && [false, true].map((paused) => (about.paused ?? paused) === paused && html`
          <button type="button" onClick=${() => ask(Pause, { paused })}>${paused ? "Resume" : "Pause"}</button>`)}
        ${may("change", group || undefined) && html`<button type="button" class="danger" onClick=${() => ask(Purge, { group })}>Purge</button>`}
        ${may("admin") && html`<button type="button" class="danger" onClick=${() => ask(Drop)}>Delete</button>`}
      </div>
      ${stats ? html`<section aria-labelledby="states"><h2 id="states">States</h2>
        <${Counts} counts=${stats.counts} /><${Now} stats=${stats} /></section>
      <section aria-labelledby="consumers"><h2 id="consumers">Consumers</h2><${Consumers} stats=${stats} /></section>
      <section aria-labelledby="coming"><h2 id="coming">Load to come</h2><${Coming} path=${path} group=${group} /></section>` : !mayRead && lacks(`on group ${group || "default"}`, "its numbers")}
      ${(about || groups.length > 0) && html`<section aria-labelledby="groups"><h2 id="groups">Groups</h2>
        <${Groups} ns=${ns} topic=${topic} groups=${groups} />
        ${may("admin") && html`<button type="button" onClick=${() => ask(NewGroup)}>New group</button>`}</section>`}
      ${about ? html`<section aria-labelledby="settings"><h2 id="settings">Settings</h2>
        <${Settings} settings=${about.settings} edit=${may("admin") ? (name, value) => ask(Setting, { name, value }) : null} /></section>` : lacks("on all groups", "settings and schedules")}
    `}</${Loaded}>`;
}

const lacks = (where, what) => html`<p role="note">You lack the right read ${where}: ${what} are not shown.</p>`;

function Coming({ path, group }) {
  const found = useLive((signal) => get(`${path}/forecast`, { group, minutes: 60, hours: 48 }, signal), [path, group]);
  return html`<${Loaded} of=${found}>${({ minutes, hours, later }) => html`<div class="two">
    <${Slots} label="Due in the next hour, by minute" slots=${minutes} />
    <${Slots} label="Due in the next two days, by hour" slots=${hours} /></div>
    <p>Later: <strong>${number(later)}</strong></p>`}</${Loaded}>`;
}

function Now({ stats }) {
  const { oldest_due_ms: oldest, rates } = stats;
  const overdue = oldest != null && oldest < brokerNow();
  return html`<${Facts} of=${[
    ["First due", oldest == null ? "nothing waits" : html`<${Time} ms=${oldest} /> <${Tag} tone=${overdue ? "warn" : ""}>${
      overdue ? `overdue: ${relative(oldest)}` : relative(oldest)}</${Tag}>`],
    ["Bounded by", stats.bounded_by === null ? "nothing" : html`<${Cause} of=${stats.bounded_by} />`],
    ["Sent a second", number(rates.sent)],
    ["Delivered a second", number(rates.delivered)],
    ["Acked a second", number(rates.acked)],
    ["Sent in all", number(stats.sent)],
    ["Delivered in all", number(stats.delivered)],
  ]} />`;
}

function Consumers({ stats }) {
  return html`<${Table} caption="Consumers with messages under lease" rows=${stats.consumers} keyOf=${({ name }) => name}
      empty="No named consumer has a message." columns=${[
        { title: "Consumer", cell: ({ name }) => name },
        counted("Leased", "leased")]} />
    <p>Calls that wait for messages: <strong>${number(stats.waiting_receives)}</strong></p>`;
}

function Groups({ ns, topic, groups }) {
  const count = (name) => ({ name, title: name, number: true, cell: ({ counts }) => number(counts[name]) });
  return html`<${Table} caption="Groups" rows=${groups} keyOf=${({ group }) => group} empty="There are no groups." columns=${[
    { title: "Group", cell: ({ group, ephemeral }) => html`<a href=${link(["topics", ns, topic], { group })}>${group}</a> ${
      ephemeral && html`<${Tag}>ephemeral</${Tag}>`}` },
    count("waiting"), count("ready"), count("leased"), count("dead"),
    counted("delivered", "delivered")]} />`;
}

function Settings({ settings, edit }) {
  const rows = Object.entries(settings);
  return html`<${Table} caption="Settings" rows=${rows} keyOf=${([name]) => name} columns=${[
    { title: "Setting", cell: ([name]) => html`<code>${name}</code>` },
    { title: "Value", cell: ([, value]) => html`<code>${write(value)}</code>` },
    ...(edit ? [{ title: "Change", cell: ([name, value]) => html`<button type="button" class="small"
      aria-label=${`Change ${name}`} onClick=${() => edit(name, value)}>Change</button>` }] : [])]} />`;
}
