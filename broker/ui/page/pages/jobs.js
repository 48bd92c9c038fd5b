// Jobs, which change many messages: how far each is, and a button to stop it.
import { html } from "../core/view.js";
import { get } from "../core/api.js";
import { write } from "../core/json.js";
import { useApp } from "../core/context.js";
import { useLive } from "../core/live.js";
import { link } from "../core/router.js";
import { Loaded } from "../parts/failure.js";
import { Facts, Table } from "../parts/table.js";
import { number, Tag, Time } from "../parts/values.js";
import { Change } from "./topic-changes.js";

const TONES = { done: "good", failed: "bad", running: "", cancelled: "warn" };

export function Jobs() {
  const found = useLive((signal) => get("/v1/jobs", {}, signal), []);
  return html`<h1 tabindex="-1">Jobs</h1>
    <${Loaded} of=${found}>${({ jobs }) => html`<${Table} caption="Jobs, newest first" rows=${jobs} keyOf=${({ job }) => job}
      empty="No job was begun." columns=${[
        { name: "job", title: "Job", cell: ({ job }) => html`<a href=${link(["jobs", job])}>${job}</a>` },
        { name: "state", title: "State", cell: ({ state }) => html`<${Tag} tone=${TONES[state]}>${state}</${Tag}>` },
        { name: "action", title: "Does", cell: ({ action }) => action },
        { name: "topic", title: "Topic", cell: ({ namespace, topic }) => topic && html`<a href=${link(["topics", namespace, topic])}>${topic}</a>` },
        { name: "matched", title: "Matched", number: true, cell: ({ matched }) => number(matched) },
        { name: "done", title: "Done", number: true, cell: ({ done }) => number(done) },
        { name: "late", title: "Too late", number: true, cell: ({ too_late: late }) => number(late) },
        { name: "begun", title: "Begun", cell: ({ begun_ms: ms }) => html`<${Time} ms=${ms} distance />` }]} />`}</${Loaded}>`;
}

export function Job({ names: { job } }) {
  const { session, show, follows } = useApp();
  const found = useLive((signal) => get(`/v1/jobs/${encodeURIComponent(job)}`, {}, signal), [job]);
  const stop = () => show((close) => html`<${Change} danger title=${`Stop job ${job}`} verb="Stop it" onClose=${close} onDone=${found.refresh}
    request=${() => ({ method: "DELETE", path: `/v1/jobs/${encodeURIComponent(job)}` })} done=${`Job ${job} is stopped.`}>
    <p>What it has changed so far stays changed.</p></${Change}>`);
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
