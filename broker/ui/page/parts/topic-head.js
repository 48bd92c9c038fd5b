// The head of each page about a topic: where it is, its other pages, and its group.
import { html } from "../core/view.js";
import { change, link } from "../core/router.js";

const PAGES = [
  ["Summary", []], ["Messages", ["messages"]], ["Dead letters", ["dead"]],
  ["Schedules", ["schedules"]], ["Push", ["push"]], ["Claims", ["claims"]],
];

export function TopicHead({ ns, topic, at = [], group = "", groups = [] }) {
  const here = at.join("/");
  return html`<div>
    <p class="crumbs"><a href=${link(["topics"], { ns: ns === "default" ? "" : ns })}>Topics</a>${
      ns !== "default" && html` / ${ns}`}</p>
    <h1 tabindex="-1">${topic}</h1>
    <nav aria-label="Topic" class="tabs">${PAGES.map(([title, below]) => html`
      <a key=${title} href=${link(["topics", ns, topic, ...below], { group })}
        aria-current=${below.join("/") === here ? "page" : undefined}>${title}</a>`)}</nav>
    ${groups.length > 1 && html`<p><label for="group">Group</label> <select id="group" value=${group || groups[0]}
      onChange=${(event) => change({ group: event.target.value, cursor: "" })}>${groups.map((each) => html`
        <option key=${each} value=${each} selected=${each === (group || groups[0])}>${each}</option>`)}</select></p>`}
  </div>`;
}
