// Dialogs that change a topic.
import {
  Ask, Choice, DueField, Field, go, html, link, parse, parseTime, stamp, topicPath, useState, write,
} from "../parts/all.js";

export function NewTopic({ ns, onClose }) {
  const [name, setName] = useState("");
  const request = () => (name ? { method: "PUT", path: topicPath(ns, name), body: {} } : null);
  return html`<${Ask} title="New topic" verb="Make it" request=${request} onClose=${onClose}
    done=${`${name} is there.`} onDone=${() => go(link(["topics", ns, name]))}>
    <${Field} label="Name" value=${name} onInput=${setName} help="Letters, digits, dots, hyphens and underscores." /></${Ask}>`;
}

export function Pause({ ns, topic, paused, onClose, onDone }) {
  const verb = paused ? "resume" : "pause";
  return html`<${Ask} title=${`${paused ? "Resume" : "Pause"} ${topic}`} verb=${paused ? "Resume" : "Pause"}
    request=${() => ({ method: "POST", path: topicPath(ns, topic, verb), body: {} })} onClose=${onClose}
    done=${paused ? "Deliveries go on." : "Deliveries have stopped."} onDone=${onDone}>
    <p>${paused ? "Consumers get messages again." : "Consumers get no messages until it is resumed. Sends and acks go on."}</p></${Ask}>`;
}

export function Purge({ ns, topic, group, onClose, onDone }) {
  const [force, setForce] = useState(false);
  const [typed, setTyped] = useState("");
  const body = { ...(group && { group }), ...(force && { force }) };
  const request = () => (typed === topic ? { method: "POST", path: topicPath(ns, topic, "purge"), body } : null);
  return html`<${Ask} danger title=${`Purge ${topic}`} verb="End the messages" request=${request} onClose=${onClose}
    done=${({ purged }) => `${purged} messages were ended.`} onDone=${onDone}>
    <p>Ends all waiting and ready messages of ${group ? `the group ${group}` : "all groups"}. They cannot be brought back.</p>
    <p><label><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> leased ones too</label></p>
    <${Field} label="Type the topic's name to confirm" value=${typed} onInput=${setTyped} /></${Ask}>`;
}

export function Drop({ ns, topic, onClose }) {
  const [force, setForce] = useState(false);
  const [typed, setTyped] = useState("");
  const path = `${topicPath(ns, topic)}${force ? "?force=true" : ""}`;
  const request = () => (typed === topic ? { method: "DELETE", path } : null);
  return html`<${Ask} danger title=${`Delete ${topic}`} verb="Delete it" request=${request} onClose=${onClose}
    done=${`${topic} is deleted.`} onDone=${() => go(link(["topics"], { ns: ns === "default" ? "" : ns }))}>
    <p><label><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> also if it has living messages, which end</label></p>
    <${Field} label="Type the topic's name to confirm" value=${typed} onInput=${setTyped} /></${Ask}>`;
}

export function Setting({ ns, topic, name, value, onClose, onDone }) {
  const [text, setText] = useState(write(value));
  const request = () => {
    if (!text.trim()) return null;
    try {
      return { method: "PATCH", path: topicPath(ns, topic), body: { [name]: parse(text) } };
    } catch {
      throw new Error(`${text} is no JSON: write a number, true, false, null, a "word" or an {"object": 1}`);
    }
  };
  return html`<${Ask} title=${`${name} of ${topic}`} verb="Change it" request=${request} onClose=${onClose}
    done=${`${name} is changed.`} onDone=${onDone}>
    <${Field} label="Value, as JSON" value=${text} onInput=${setText} help="null: the default." /></${Ask}>`;
}

export function Send({ ns, topic, onClose, onDone }) {
  const [body, setBody] = useState("");
  const [due, setDue] = useState("now");
  const [id, setId] = useState("");
  const [key, setKey] = useState("");
  const [tags, setTags] = useState("");
  const request = () => {
    const at = parseTime(due || "now");
    const words = tags.split(/[\s,]+/).filter(Boolean);
    return { method: "POST", path: topicPath(ns, topic, "messages"), body: {
      body, ...(due !== "now" && { deliver_at_ms: at }), ...(id && { id }), ...(key && { key }),
      ...(words.length && { tags: words }) } };
  };
  return html`<${Ask} title=${`Send to ${topic}`} verb="Send" request=${request} onClose=${onClose} onDone=${onDone}
    done=${({ id: made, deliver_at_ms: at }) => `${made} is due ${stamp(at)}.`}>
    <${Field} label="Body" type="area" value=${body} onInput=${setBody} rows="4" />
    <${DueField} value=${due} onInput=${setDue} />
    <${Field} label="Id" value=${id} onInput=${setId} help="Empty: the broker makes one." />
    <${Field} label="Key" value=${key} onInput=${setKey} />
    <${Field} label="Tags" value=${tags} onInput=${setTags} help="Words, with spaces between." /></${Ask}>`;
}

export function NewGroup({ ns, topic, onClose, onDone }) {
  const [name, setName] = useState("");
  const [kind, setKind] = useState("lasting");
  const body = kind === "lasting" ? {} : { ephemeral: true };
  const request = () => (name ? { method: "PUT", path: topicPath(ns, topic, "groups", name), body } : null);
  return html`<${Ask} title=${`New group of ${topic}`} verb="Make it" request=${request} onClose=${onClose} onDone=${onDone}
    done=${`${name} gets the messages that are sent from now on.`}>
    <${Field} label="Name" value=${name} onInput=${setName} />
    <${Choice} label="Kind" value=${kind} onInput=${setKind}
      options=${[["lasting", "lasting"], ["ephemeral", "ephemeral: dropped when nobody receives"]]} /></${Ask}>`;
}
