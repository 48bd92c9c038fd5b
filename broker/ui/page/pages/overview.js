// The broker at a glance.
import {
  bytes, counted, Facts, get, html, link, Loaded, noteNow, number, State, Table, Tag, timed,
  useApp, useEffect, useLive, useState,
} from "../parts/all.js";
import { Heat, Lines, Slots } from "../parts/chart.js";

const POINTS_MAX = 300;
/** The broker copies seconds of this many messages in advance. */
const HOT = 8_192;
const RATES = ["sent", "delivered", "acked"];
const DAY_HOURS = 24;

/** Hours summed up to days of 24 hours from now. */
const days = (hours) => hours.reduce((out, { from_ms, count }, at) => {
  if (at % DAY_HOURS === 0) out.push({ from_ms, count: 0 });
  out.at(-1).count += count;
  return out;
}, []);

export function Overview() {
  const { session } = useApp();
  const found = useLive(async (signal) => {
    const about = await get("/v1/overview", { minutes: 60, hours: 14 * DAY_HOURS }, signal);
    noteNow(about.now_ms);
    return about;
  }, []);
  const [points, setPoints] = useState([]);
  useEffect(() => {
    if (found.data) setPoints((old) => [...old, { ms: found.data.now_ms, values: RATES.map((name) => found.data.rates[name]) }].slice(-POINTS_MAX));
  }, [found.data]);
  return html`<h1 tabindex="-1">Overview</h1>
    <${Loaded} of=${found}>${(about) => html`
      <dl class="counts">${["waiting", "ready", "leased", "dead"].map((state) => html`<div key=${state}>
        <dt><${State} of=${state} /></dt><dd>${number(about.counts[state])}</dd></div>`)}</dl>
      <p class="quiet">As default groups see it.</p>
      <${Facts} of=${[
        ["Topics", session.maySomewhere("read") ? html`<a href=${link(["topics"])}>${number(about.topics)}</a> in ${about.namespaces.map((ns) => html`
          <a key=${ns} href=${link(["topics"], { ns: ns === "default" ? "" : ns })}>${ns}</a> `)}` : number(about.topics)],
        ["Disk", html`${bytes(about.free_bytes)} free ${about.disk_full && html`<${Tag} tone="bad">full: sends are refused</${Tag}>`}`],
        ["Jobs that run", html`<a href=${link(["jobs"])}>${number(about.jobs_running)}</a>`],
      ]} />
      <section aria-labelledby="behind"><h2 id="behind">Most ready messages</h2>
        <${Table} caption="Groups with the most ready messages" rows=${about.behind} keyOf=${({ namespace, topic, group }) => `${namespace}/${topic}/${group}`}
          empty="No message waits for a consumer." columns=${[
            { title: "Topic", cell: ({ namespace, topic }) => html`<a href=${link(["topics", namespace, topic])}>${topic}</a>${namespace !== "default" && ` in ${namespace}`}` },
            { title: "Group", cell: ({ namespace, topic, group }) => html`<a href=${link(["topics", namespace, topic], { group })}>${group}</a>` },
            counted("Ready", "ready"),
            timed("Oldest due", "oldest_due_ms")]} /></section>
      <section aria-labelledby="rates"><h2 id="rates">Messages a second</h2>
        ${points.length > 1 ? html`<${Lines} label="Since this page was opened" names=${RATES} points=${points} />`
          : html`<p>${RATES.map((name) => `${name}: ${number(about.rates[name])}`).join(", ")}</p>`}</section>
      <${Heat} of=${about.lateness} />
      <section aria-labelledby="load"><h2 id="load">Load to come</h2>
        <div class="two"><${Slots} label="By minute, one hour" slots=${about.minutes} />
          <${Slots} label="By hour, two days" slots=${about.hours.slice(0, 48)} />
          <${Slots} label="By day, two weeks" slots=${days(about.hours)} />
          <div><h3>Busiest seconds of the hour</h3><${Table} caption="Busiest seconds" rows=${about.seconds} keyOf=${({ from_ms: ms }) => ms}
            empty="Nothing is due in the next hour." columns=${[
              timed("Second", "from_ms"),
              { title: "Messages", number: true, cell: ({ count }) => html`${number(count)} ${count >= HOT && html`<${Tag} tone="warn">hot</${Tag}>`}` }]} />
            <p>Later than two weeks: <strong>${number(about.later)}</strong></p></div></div></section>`}</${Loaded}>`;
}
