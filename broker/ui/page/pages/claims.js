// Claims of a topic that have not ended.
import { html } from "../core/view.js";
import { get, topicPath } from "../core/api.js";
import { useLive } from "../core/live.js";
import { Loaded } from "../parts/failure.js";
import { Table } from "../parts/table.js";
import { TopicHead } from "../parts/topic-head.js";
import { number, Tag, Time } from "../parts/values.js";

export function Claims({ names: { ns, topic } }) {
  const found = useLive((signal) => get(topicPath(ns, topic, "claims"), {}, signal), [ns, topic]);
  return html`<${TopicHead} ns=${ns} topic=${topic} at=${["claims"]} />
    <${Loaded} of=${found}>${({ claims }) => html`<${Table} caption="Claims" rows=${claims} keyOf=${({ claim, group }) => `${group} ${claim}`}
      empty="There are no open claims." columns=${[
        { name: "claim", title: "Claim", cell: ({ claim }) => claim },
        { name: "group", title: "Group", cell: ({ group }) => group },
        { name: "state", title: "State", cell: ({ state }) => html`<${Tag}>${state}</${Tag}>` },
        { name: "n", title: "Messages", number: true, cell: ({ n }) => number(n) },
        { name: "until", title: "Leased until", cell: ({ lease_until_ms: ms }) => html`<${Time} ms=${ms} distance />` }]} />`}</${Loaded}>`;
}
