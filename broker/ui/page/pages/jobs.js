// Jobs, which change many messages.
import {
  Ask, counted, Facts, get, html, link, Loaded, number, Table, Tag, Time, timed, useApp, useLive,
  write,
} from "../parts/all.js";

const TONES = { done: "good", failed: "bad", running: "", cancelled: "warn" };

export function Jobs() {
  const found = useLive((signal) => get("/v1/jobs", {}, signal), []);
  return html`<h1 tabindex="-1">Jobs</h1>
    <${Loaded} of=${found}>${({ jobs }) => html`<${Table} caption="Jobs, newest first" partial rows=${jobs} keyOf=${({ job }) => job}
      empty="No job was begun." columns=${[
        { title: "Job", cell: ({ job }) => html`<a href=${link(["jobs", job])}>${job}</a>` },
        { title: "State", cell: ({ state }) => html`<${Tag} tone=${TONES[state]}>${state}</${Tag}>` },
        { title: "Does", cell: ({ action }) => action },
        { title: "Topic", cell: ({ namespace, topic }) => topic && html`<a href=${link(["topics", namespace, topic])}>${topic}</a>` },
        counted("Matched", "matched"),
        counted("Done", "done"),
        counted("Too late", "too_late"),
        timed("Begun", "begun_ms")]} />`}</${Loaded}>`;
}

export function Job({ names: { job } }) {
  const { session, show, follows } = useApp();
  const found = useLive((signal) => get(`/v1/jobs/${encodeURIComponent(job)}`, {}, signal), [job]);
  const stop = () => show((close) => html`<${Ask} danger title=${`Stop job ${job}`} verb="Stop it" onClose=${close} onDone=${found.refresh}
    request=${() => ({ method: "DELETE", path: `/v1/jobs/${encodeURIComponent(job)}` })} done=${`Job ${job} is stopped.`}>
    <p>What it has changed so far stays changed.</p></${Ask}>`);
  return html`<p class="crumbs"><a href=${link(["jobs"])}>Jobs</a></p><h1 tabindex="-1">Job ${job}</h1>
    <${Loaded} of=${found}>${(about) => html`
      <div class="bar"><${Tag} tone=${TONES[about.state]}>${about.state}</${Tag}>
        ${about.state === "running" && !follows && session.may("change", about.namespace, about.topic) && html`
          <button type="button" class="danger" onClick=${stop}>Stop</button>`}</div>
      <p role="status">${number(about.done)} done of ${number(about.matched)} that matched; ${number(about.scanned)} examined.</p>
      <${Facts} of=${[
        ["Does", about.action],
        ["Topic", about.topic && html`<a href=${link(["topics", about.namespace, about.topic])}>${about.topic}</a>`],
        ["Filter", html`<code>${write(about.filter)}</code>`],
        ["Rate", about.rate == null ? "as fast as possible" : `${number(about.rate)} a second`],
        ["New due time", about.deliver_at_ms == null ? undefined : html`<${Time} ms=${about.deliver_at_ms} distance />`],
        ["Too late", number(about.too_late)],
        ["Begun", html`<${Time} ms=${about.begun_ms} distance />`],
        ["Ended", about.ended_ms == null ? "not yet" : html`<${Time} ms=${about.ended_ms} distance />`],
      ]} />`}</${Loaded}>`;
}
