// The nodes of a cluster.
import {
  Ask, bytes, counted, Facts, get, html, Loaded, number, Table, Tag, timed, useApp, useLive,
} from "../parts/all.js";

/** The cluster as this node sees it; null if it is alone. */
export const clusterOf = async (session, signal) => (session.inCluster ? get("/v1/cluster", {}, signal) : null);

export function Nodes() {
  const { session, show } = useApp();
  const found = useLive(async (signal) => ({ cluster: await clusterOf(session, signal) }), []);
  const handOver = (name) => show((close) => html`<${Ask} title=${name ? `Hand over to ${name}` : "Hand over"} verb="Hand over" onClose=${close}
    request=${() => ({ method: "POST", path: "/v1/cluster/handover", body: name ? { to: name } : {} })} onDone=${found.refresh}
    done=${({ name: next, pause_ms: ms }) => `${next} leads; calls waited for ${ms} ms.`}>
    <p>Calls wait for some milliseconds while another node takes over.</p></${Ask}>`);
  return html`<h1 tabindex="-1">Nodes</h1>
    <${Loaded} of=${found}>${({ cluster }) => cluster === null
      ? html`<p>This broker is a single node. docs/CLUSTER.md says how to run a cluster.</p>`
      : html`<${Cluster} cluster=${cluster} handOver=${cluster.role === "leader" && session.maySomewhere("operate") ? handOver : null} />`}</${Loaded}>`;
}

function Cluster({ cluster, handOver }) {
  const { leader, epoch, members } = cluster;
  const role = ({ node, voter }) => (leader?.node === node ? "leader" : voter === false ? "learner" : "follower");
  return html`<${Facts} of=${[
      ["Cluster", cluster.cluster], ["This node", `${cluster.name} (${cluster.role})`],
      ["Leader", leader ? leader.name : html`<${Tag} tone="bad">none</${Tag}>`],
      ["Epoch", epoch && `${number(epoch.counter)} of node ${number(epoch.node)}`],
      ["Majority", cluster.majority ? "reachable" : html`<${Tag} tone="bad">not reachable</${Tag}>`],
      ["Missing voters", cluster.missing_voters.join(", ") || "none"],
      ["Newest confirmed tick", cluster.gate_age_ms == null ? undefined : `${number(cluster.gate_age_ms)} ms ago`],
      ["Log", `${number(cluster.commit)} committed, ${number(cluster.applied)} applied, ends at ${number(cluster.log_end)}`],
      ["Release", cluster.release], ["Error", cluster.error ? html`<${Tag} tone="bad">${cluster.error}</${Tag}>` : undefined]]} />
    <${Table} caption="Nodes" rows=${members} keyOf=${({ node }) => node} columns=${[
      { title: "Node", cell: (each) => html`<strong>${each.name}</strong>${each.http && html` <a href=${`${each.http}/ui/`}>dashboard</a>`}` },
      { title: "Role", cell: (each) => html`<${Tag} tone=${role(each) === "leader" ? "good" : ""}>${role(each)}</${Tag}>` },
      { title: "State", cell: (each) => html`${each.node !== cluster.node && !each.connected && html`<${Tag} tone="bad">away</${Tag}>`} ${
        each.fit === false && html`<${Tag} tone="warn">unfit: ${each.unfit}</${Tag}>`} ${each.clock_off && html`<${Tag} tone="bad">wrong clock</${Tag}>`}` },
      { title: "Lag", number: true, cell: ({ lag_bytes: lag }) => bytes(lag) },
      { title: "Sync", number: true, cell: ({ sync_ms: ms }) => (ms == null ? "–" : `${number(ms)} ms`) },
      { title: "Clock ahead", number: true, cell: ({ clock_ahead_ms: ms }) => (ms == null ? "–" : `${number(ms)} ms`) },
      { title: "Zone", cell: ({ zone }) => zone },
      { title: "Release", cell: ({ release }) => release },
      ...(handOver ? [{ title: "Do", cell: ({ name, node }) => leader?.node !== node && html`<button type="button" class="small"
        aria-label=${`Hand over to ${name}`} onClick=${() => handOver(name)}>Hand over</button>` }] : [])]} />
    <h2>Leaders</h2><${Table} caption="Leaders, newest first" rows=${cluster.leaders} keyOf=${({ counter }) => counter} columns=${[
      { title: "Node", cell: ({ name, node }) => name ?? node },
      timed("Since", "began_ms"),
      counted("Epoch", "counter")]} />`;
}
