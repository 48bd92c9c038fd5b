// Push targets of a topic's groups.
import {
  Ask, Facts, get, html, link, Loaded, number, Table, Tag, Time, topicPath, useApp, useLive,
} from "../parts/all.js";

const MEANT = {
  closed: ["good", "works"],
  open: ["bad", "the circuit breaker is open: nothing is sent"],
  "half-open": ["warn", "one attempt tries whether it works again"],
  throttled: ["warn", "the receiver asked for a pause"],
  disabled: ["bad", "disabled"],
};

export function Push({ names: { ns, topic }, groups }) {
  const { session, show, follows } = useApp();
  const found = useLive((signal) => get(topicPath(ns, topic, "targets"), {}, signal), [ns, topic]);
  const may = !follows && session.may("admin", ns, topic);
  const ask = (target, on) => show((close) => html`<${Ask} title=${`${on ? "Push" : "Stop pushing"} ${topic}, group ${target.group}`}
    verb=${on ? "Push again" : "Stop pushing"} onClose=${close} onDone=${found.refresh} done=${on ? "Messages are pushed again." : "Nothing is pushed."}
    request=${() => ({ method: "PATCH", path: topicPath(ns, topic, "groups", target.group, "target"), body: { push: on ? "on" : "off" } })}>
    <p>${on ? "Failures so far are forgotten." : "Messages wait, and use up no retries."}</p></${Ask}>`);
  return html`<${Loaded} of=${found}>${({ targets }) => targets.length === 0 ? html`<p>No group of this topic is pushed to a URL.</p>`
      : targets.map((target) => html`<${Target} key=${target.group} target=${target} counts=${groups.find(({ group }) => group === target.group)?.counts ?? {}} ask=${may ? ask : null} />`)}</${Loaded}>`;
}

/** The push targets of all topics. */
export function AllTargets() {
  const found = useLive((signal) => get("/v1/targets", { limit: 100 }, signal), []);
  return html`<h1 tabindex="-1">Push targets</h1>
    <${Loaded} of=${found}>${({ targets }) => html`<${Table} caption="Push targets, those that fail first" rows=${targets}
      keyOf=${({ namespace, topic, group }) => `${namespace}/${topic}/${group}`} empty="No topic is pushed to a URL." columns=${[
        { title: "Topic", cell: ({ namespace, topic }) => html`<a href=${link(["topics", namespace, topic, "push"])}>${topic}</a>` },
        { title: "Group", cell: ({ group }) => group },
        { title: "State", cell: ({ state }) => html`<${Tag} tone=${MEANT[state]?.[0]}>${state}</${Tag}>` },
        { title: "Last failure", cell: ({ reason }) => reason },
        { title: "Failing since", cell: ({ failing_since_ms: ms }) => html`<${Time} ms=${ms || null} distance />` },
        { title: "URL", cell: ({ url }) => html`<code>${url}</code>` }]} />`}</${Loaded}>`;
}

function Target({ target, counts, ask }) {
  const failing = target.state === "closed" && target.failing_since_ms > 0;
  const [tone, meaning] = failing ? ["warn", "tries, and fails so far"] : MEANT[target.state] ?? ["", ""];
  const off = target.state === "disabled";
  return html`<section aria-label=${`Target of ${target.group}`}><h2>Group ${target.group}</h2>
    <div class="bar"><${Tag} tone=${tone}>${target.state}</${Tag}> ${meaning}${target.disabled && ` by ${target.disabled}`}
      ${ask && html`<button type="button" onClick=${() => ask(target, off || target.state === "open")}>${
        off || target.state === "open" ? "Push again" : "Stop pushing"}</button>`}</div>
    <${Facts} of=${[
      ["URL", html`<code>${target.url}</code>`],
      ["Last failure", target.reason || undefined],
      ["Failing since", target.failing_since_ms ? html`<${Time} ms=${target.failing_since_ms} distance />` : undefined],
      ["Open until", target.open_until_ms ? html`<${Time} ms=${target.open_until_ms} distance />` : undefined],
      ["Throttled until", target.throttled_until_ms ? html`<${Time} ms=${target.throttled_until_ms} distance />` : undefined],
      ["Waiting", number(counts.waiting)],
      ["Ready", number(counts.ready)],
      ["Form", target.mode],
      ["In flight at most", number(target.concurrency)],
      ["Attempts a second", target.per_second == null ? "any" : number(target.per_second)],
      ["Time limit", `${number(target.timeout_ms)} ms`],
      ["Secrets", target.digests.join(", ")],
    ]} /></section>`;
}
