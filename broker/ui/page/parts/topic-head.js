// The frame of each page about a topic.
import { html } from "../core/view.js";
import { get, topicPath } from "../core/api.js";
import { useLive } from "../core/live.js";
import { change, link } from "../core/router.js";
import { useApp } from "../core/session.js";

/** Title, part of the path, and whether the page shows one group. */
const TABS = [
  ["Summary", "", true], ["Messages", "messages", true], ["Dead letters", "dead", true],
  ["Schedules", "schedules"], ["Push", "push"], ["Claims", "claims"],
];

/** A page, in the group of the link, the default group, or the first that the caller may read. */
export function OfTopic({ place: { page, names }, query }) {
  const { ns, topic } = names;
  const { session } = useApp();
  const { data, error } = useLive((signal) => get(topicPath(ns, topic, "groups"), {}, signal), [ns, topic]);
  const groups = data?.groups ?? [];
  const all = groups.map((each) => each.group);
  const group = query.group || (all.includes("default") ? "" : all[0] ?? "");
  const here = page.path.split("/").slice(4).join("/");
  const shown = {
    schedules: session.may("read", ns, topic),
    push: [undefined, ...all].some((each) => session.may("admin", ns, topic, each)),
  };
  return html`<p class="crumbs"><a href=${link(["topics"], { ns: ns === "default" ? "" : ns })}>Topics</a>${
      ns !== "default" && html` / ${ns}`}</p>
    <h1 tabindex="-1">${topic}</h1>
    <nav aria-label="Topic" class="tabs">${TABS.map(([title, at]) => shown[at] !== false && html`
      <a key=${title} href=${link(["topics", ns, topic, ...(at ? [at] : [])], { group })}
        aria-current=${at === here ? "page" : undefined}>${title}</a>`)}</nav>
    ${all.length > 1 && TABS.some(([, at, one]) => one && at === here.split("/")[0]) && html`<p><label for="group">Group</label> <select id="group" value=${group || "default"}
      onChange=${(event) => change({ group: event.target.value, cursor: "" })}>${all.map((each) => html`
        <option key=${each} value=${each} selected=${each === (group || "default")}>${each}</option>`)}</select></p>`}
    ${data || error ? html`<${page.view} names=${names} query=${{ ...query, group }} groups=${groups} />`
      : html`<p role="status">Reading…</p>`}`;
}
