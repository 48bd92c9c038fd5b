// The schedules of a topic.
import {
  Ask, Choice, counted, Failure, Field, get, html, link, Loaded, post, Table, Tag, timed,
  topicPath, useApp, useEffect, useLive, useState, ZONE,
} from "../parts/all.js";

const TONES = { running: "good", paused: "warn", ended: "" };
const SHOWN = [
  { title: "Schedule", cell: ({ schedule }) => html`<strong>${schedule}</strong>` },
  { title: "State", cell: ({ state, note }) => html`<${Tag} tone=${TONES[state]}>${state}</${Tag}> ${note}` },
  { title: "Fires", cell: ({ explain }) => explain },
  timed("Next", "next_ms"),
  counted("Firings", "n"),
];
const COMING = 10;
const TYPED_MS = 400;

export function Schedules({ names: { ns, topic } }) {
  const { session, show, follows } = useApp();
  const [open, setOpen] = useState(null);
  const path = topicPath(ns, topic, "schedules");
  const found = useLive((signal) => get(path, { limit: 100 }, signal), [path]);
  const may = (right) => !follows && session.may(right, ns, topic);
  const ask = (Dialog, more) => show((close) => html`<${Dialog} ns=${ns} topic=${topic} onClose=${close} onDone=${found.refresh} ...${more} />`);
  const verbs = ({ schedule: name, state }) => html`
    <button type="button" class="small" aria-expanded=${open === name} aria-label=${`Next firings of ${name}`}
      onClick=${() => setOpen(open === name ? null : name)}>Next</button>
    ${may("change") && html`
      ${state !== "ended" && html`<button type="button" class="small" aria-label=${`${state === "paused" ? "Resume" : "Pause"} ${name}`}
        onClick=${() => ask(PauseSchedule, { name, paused: state === "paused" })}>${state === "paused" ? "Resume" : "Pause"}</button>`}
      <button type="button" class="small" aria-label=${`Run now: ${name}`} onClick=${() => ask(RunSchedule, { name })}>Run now</button>`}
    ${may("admin") && html`<button type="button" class="small danger" aria-label=${`Delete ${name}`} onClick=${() => ask(DropSchedule, { name })}>Delete</button>`}`;
  return html`${may("admin") && html`<div class="bar"><button type="button" onClick=${() => ask(NewSchedule)}>New schedule</button></div>`}
    <${Loaded} of=${found}>${({ schedules }) => html`<${Table} caption="Schedules" rows=${schedules} keyOf=${({ schedule }) => schedule}
      empty="There are no schedules." columns=${[...SHOWN,
        { title: "Do", cell: verbs }]} />
      ${open !== null && html`<${Coming} key=${open} path=${topicPath(ns, topic, "schedules", open, "preview")} name=${open} />`}`}</${Loaded}>`;
}

/** The schedules of all topics. */
export function AllSchedules() {
  const found = useLive((signal) => get("/v1/schedules", { limit: 100 }, signal), []);
  return html`<h1 tabindex="-1">Schedules</h1>
    <${Loaded} of=${found}>${({ schedules }) => html`<${Table} caption="Schedules that fire next" partial rows=${schedules}
      keyOf=${({ namespace, topic, schedule }) => `${namespace}/${topic}/${schedule}`} empty="There are no schedules." columns=${[
        { title: "Topic", cell: ({ namespace, topic }) => html`<a href=${link(["topics", namespace, topic, "schedules"])}>${topic}</a>` },
        ...SHOWN]} />`}</${Loaded}>`;
}

function Coming({ path, name }) {
  const found = useLive((signal) => get(path, { n: COMING }, signal), [path]);
  return html`<section aria-labelledby="firings"><h2 id="firings">Next firings of ${name}</h2>
    <${Loaded} of=${found}>${({ firings }) => html`<${Table} caption="Next firings" rows=${firings} keyOf=${({ instant_ms: ms }) => ms}
      empty="It does not fire again." columns=${[
        { title: "In its zone", cell: ({ local }) => local },
        timed("Due", "due_ms"),
        { title: "Clock change", cell: ({ change }) => change && html`<${Tag} tone="warn">${change}</${Tag}>` }]} />`}</${Loaded}></section>`;
}

function PauseSchedule({ ns, topic, name, paused, onClose, onDone }) {
  const [note, setNote] = useState("");
  const request = () => ({ method: "POST", path: topicPath(ns, topic, "schedules", name, paused ? "resume" : "pause"),
    body: paused || !note ? {} : { note } });
  return html`<${Ask} title=${`${paused ? "Resume" : "Pause"} ${name}`} verb=${paused ? "Resume" : "Pause"} request=${request}
    onClose=${onClose} onDone=${onDone} done=${`${name} is ${paused ? "running" : "paused"}.`}>
    ${paused ? html`<p>It fires again, from its next instant on.</p>`
      : html`<${Field} label="Note" value=${note} onInput=${setNote} help="Why it is paused, for others." />`}</${Ask}>`;
}

function RunSchedule({ ns, topic, name, onClose, onDone }) {
  return html`<${Ask} title=${`Run ${name} now`} verb="Run now" onClose=${onClose} onDone=${onDone} done=${({ id }) => `${id} is sent.`}
    request=${() => ({ method: "POST", path: topicPath(ns, topic, "schedules", name, "run"), body: {} })}>
    <p>One message is sent at once. The schedule goes on as before.</p></${Ask}>`;
}

function DropSchedule({ ns, topic, name, onClose, onDone }) {
  return html`<${Ask} danger title=${`Delete ${name}`} verb="Delete it" onClose=${onClose} onDone=${onDone} done=${`${name} is deleted.`}
    request=${() => ({ method: "DELETE", path: topicPath(ns, topic, "schedules", name) })}>
    <p>It fires no more. Messages that it has sent stay.</p></${Ask}>`;
}

function NewSchedule({ ns, topic, onClose, onDone }) {
  const [name, setName] = useState("");
  const [kind, setKind] = useState("cron");
  const [when, setWhen] = useState("0 9 * * 1-5");
  const [zone, setZone] = useState(ZONE);
  const [body, setBody] = useState("");
  const timing = () => (kind === "interval_ms" ? { interval_ms: Number(when) } : { [kind]: when, zone });
  const request = () => (name && when
    ? { method: "PUT", path: topicPath(ns, topic, "schedules", name), body: { ...timing(), body } } : null);
  return html`<${Ask} title=${`New schedule of ${topic}`} verb="Make it" request=${request} onClose=${onClose} onDone=${onDone}
    done=${({ explain }) => `${name}: ${explain}.`}>
    <${Field} label="Name" value=${name} onInput=${setName} />
    <${Choice} label="Form" value=${kind} onInput=${setKind} options=${[["cron", "cron"], ["interval_ms", "interval in ms"], ["rrule", "RRULE"]]} />
    <${Field} label="When" value=${when} onInput=${setWhen} />
    ${kind !== "interval_ms" && html`<${Field} label="Zone" value=${zone} onInput=${setZone} />`}
    <${Field} label="Body" type="area" value=${body} onInput=${setBody} rows="3" />
    <${Tried} ns=${ns} topic=${topic} timing=${timing()} /></${Ask}>`;
}

/** The first firings that it would have. */
function Tried({ ns, topic, timing }) {
  const [found, setFound] = useState({ firings: [], error: null });
  const text = JSON.stringify(timing);
  useEffect(() => {
    // Ask once the typing has paused.
    const timer = setTimeout(async () => {
      try {
        const { firings } = await post(topicPath(ns, topic, "schedules", "new", "preview"), JSON.parse(text), { n: 3 });
        setFound({ firings, error: null });
      } catch (error) {
        setFound({ firings: [], error });
      }
    }, TYPED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div role="status"><${Failure} error=${found.error} />${found.firings.length > 0 && html`
    <p>It would fire:</p><ol>${found.firings.map(({ instant_ms: ms, local }) => html`<li key=${ms}>${local}</li>`)}</ol>`}</div>`;
}
