// Changes of all messages that match a filter: counted, confirmed, then done by a job.
import {
  Ask, Dialog, DueField, Failure, Field, get, go, html, link, number, parseTime, stamp, topicPath,
  useEffect, useRef, useState,
} from "../parts/all.js";
import { filterOf } from "./messages.js";

const WORDS = {
  cancel: ["Cancel", "They end, and nobody gets them."],
  reschedule: ["Reschedule", "They are due at the new time."],
  replay: ["Replay", "Dead letters become due again, with no attempts."],
};
const STATES = { cancel: ["waiting", "ready", "leased", "dead"], reschedule: ["waiting", "ready"], replay: ["dead"] };

/** The filter of a job, from the query of a list. Raises an Error if a job has no such filter. */
function jobFilter(action, query) {
  const { group = "default", cause, reason, reason_prefix: prefix } = query;
  const { state, due_from: from, due_to: to, tag, key } = filterOf(query);
  const states = state ? state.split(",") : action === "replay" ? ["dead"] : [];
  if (states.length > 1) throw new Error("A job takes one state or all: choose one in the filter.");
  if (states[0] && !STATES[action].includes(states[0])) {
    throw new Error(`${WORDS[action][0]} is not for ${states[0]} messages.`);
  }
  return {
    ...(states[0] && { state: states[0] }), ...(from != null && { due_from: from }),
    ...(to != null && { due_to: to }), ...(tag && { tag }), ...(key != null && key !== "" && { key }),
    // The list shows what one group sees, so the job acts in that group alone.
    group: group || "default", ...(cause && { cause }), ...(cause && reason != null && { reason }),
    ...(cause && prefix && { reason_prefix: prefix }),
  };
}

const told = (filter) => Object.entries(filter).map(([name, value]) =>
  `${name.replace("_", " ")} ${name.startsWith("due") ? stamp(value) : value || "none"}`).join(", ");

export function Bulk({ ns, topic, action, query, onClose }) {
  const [verb, effect] = WORDS[action];
  const [count, setCount] = useState({ matched: 0, scanned: 0, ended: false, stopped: false });
  const [error, setError] = useState(null);
  const [rate, setRate] = useState("");
  const [due, setDue] = useState(action === "cancel" ? "" : "now");
  const path = topicPath(ns, topic, `messages:${action}`);
  // Once: `now` is what it was when counting began.
  const [[filter, wrong]] = useState(() => safely(() => jobFilter(action, query)));
  const force = filter && ["dead", "leased"].includes(filter.state) && action === "cancel" ? { force: true } : {};
  const counting = useRef(new AbortController()).current;
  useEffect(() => {
    if (!filter) return undefined;
    countAll(topicPath(ns, topic, "messages:count"), filter, counting.signal, setCount).catch((problem) => {
      if (!counting.signal.aborted) setError(problem);
    });
    return () => counting.abort();
  }, []);
  const stop = () => {
    counting.abort();
    setCount({ ...count, stopped: true });
  };
  if (wrong) return html`<${Dialog} title=${`${verb} messages`} onClose=${onClose}><p class="wrong">${wrong.message}</p>
    <button type="button" onClick=${onClose}>Close</button></${Dialog}>`;
  const request = () => {
    const at = due ? parseTime(due) : null;
    if (rate && !/^[1-9]\d*$/.test(rate)) throw new Error("The rate is a whole number of messages a second.");
    if (action === "reschedule" && at == null) throw new Error("Write the new due time.");
    if (!count.ended && !count.stopped) return null;
    if (count.ended && count.matched === 0) return null;
    return { method: "POST", path, body: {
      filter, ...force, ...(rate && { rate: Number(rate) }),
      ...(at != null && (due === "now" ? { delay_ms: 0 } : { deliver_at_ms: at })) } };
  };
  const button = count.ended ? `${verb} ${number(count.matched)}` : `${verb} all that match`;
  return html`<${Ask} danger=${action === "cancel"} title=${`${verb} messages of ${topic}`} verb=${button} request=${request}
    onClose=${onClose} done=${({ job }) => `Job ${job} has begun.`} onDone=${({ job }) => go(link(["jobs", job]))}>
    <p>${effect} Filter: <strong>${told(filter)}</strong>.</p>
    <${Failure} error=${error} />
    <p role="status" aria-live="polite">${count.ended ? html`<strong>${number(count.matched)}</strong> match now. The job may find others that change until then.`
      : html`Counting: <strong>${number(count.matched)}</strong> match of ${number(count.scanned)} examined${
        count.stopped ? ", then stopped." : "…"}`}
      ${!count.ended && !count.stopped && !error && html` <button type="button" class="small" onClick=${stop}>Stop counting</button>`}</p>
    ${action !== "cancel" && html`<${DueField} label="New due time" value=${due} onInput=${setDue} />`}
    <${Field} autofocus label="Rate" value=${rate} onInput=${setRate} help="Messages a second; empty: as fast as possible." /></${Ask}>`;
}

function safely(make) {
  try {
    return [make(), null];
  } catch (error) {
    return [null, error];
  }
}

/** Count what matches, a piece at a time, until the end or until stopped. */
async function countAll(path, filter, signal, tell) {
  let [cursor, matched, scanned] = [null, 0, 0];
  do {
    // An empty reason is a condition too.
    const part = await get(`${path}?${new URLSearchParams(cursor ? { ...filter, cursor } : filter)}`, {}, signal);
    [cursor, matched, scanned] = [part.cursor, matched + part.matched, scanned + part.scanned];
    tell((old) => ({ ...old, matched, scanned, ended: cursor === null }));
  } while (cursor !== null);
}
