// Claims of a topic that have not ended.
import {
  counted, get, html, Loaded, Table, Tag, timed, TopicHead, topicPath, useLive,
} from "../parts/all.js";

export function Claims({ names: { ns, topic } }) {
  const found = useLive((signal) => get(topicPath(ns, topic, "claims"), {}, signal), [ns, topic]);
  return html`<${TopicHead} ns=${ns} topic=${topic} at=${["claims"]} />
    <${Loaded} of=${found}>${({ claims }) => html`<${Table} caption="Claims" rows=${claims} keyOf=${({ claim, group }) => `${group} ${claim}`}
      empty="There are no open claims." columns=${[
        { title: "Claim", cell: ({ claim }) => claim },
        { title: "Group", cell: ({ group }) => group },
        { title: "State", cell: ({ state }) => html`<${Tag}>${state}</${Tag}>` },
        counted("Messages", "n"),
        timed("Leased until", "lease_until_ms")]} />`}</${Loaded}>`;
}
