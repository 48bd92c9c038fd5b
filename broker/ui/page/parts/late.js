// Why messages are late: causes and waits.
import { html } from "../core/view.js";
import { link } from "../core/router.js";
import { brokerNow, length } from "../core/time.js";
import { Table } from "./table.js";
import { Tag, Time } from "./values.js";

const WORDS = {
  down: "the broker did not run", take_over: "another node took over", catching_up: "a start replayed the log",
  stall: "the process stood still", held: "the broker is held",
  paused: "the topic is paused", key: "its key is locked by another message", rate_limit: "the topic's rate limit",
  leased_max: "the limit of messages under lease",
  push_target: "the push target fails or is disabled",
  filtered_out: "consumers ask only for other tags or ids",
  slow_disk: "the disk was slow", loading: "it was read from disk", no_consumers: "nobody asks for messages",
  slow_consumers: "consumers are busy", unknown: "not known",
};

/** A cause, by its name in the API and in words. */
export const Cause = ({ of }) => html`<${Tag} tone="warn">${of.replaceAll("_", " ")}</${Tag}> ${WORDS[of]}`;

/** The cause that held longest in a time; nothing if none is known. */
export function longest(waits = [], from, until) {
  const totals = {};
  for (const { from_ms: begin, until_ms: end, cause } of waits) {
    if (begin < until && end > from) totals[cause] = (totals[cause] ?? 0) + end - begin;
  }
  return Object.keys(totals).sort((one, other) => totals[other] - totals[one])[0]?.replaceAll("_", " ");
}

/** The waits of a message between ready and handed out, if the broker tells them; `since`: it is
 *  ready from then until now. */
export function Waits({ waits, since, ns, topic, group }) {
  if (!waits?.length) return null;
  return html`<section aria-labelledby="late"><h3 id="late">Why late</h3>
    <${Table} caption="Waits" rows=${waits} keyOf=${({ from_ms: ms, cause }) => `${ms} ${cause}`} columns=${[
      { title: "From", cell: ({ from_ms: ms }) => html`<${Time} ms=${ms} />` },
      { title: "For", cell: (wait) => (since && wait === waits.at(-1) && wait.until_ms > since
        ? `${length(brokerNow() - wait.from_ms)}, until now` : length(wait.until_ms - wait.from_ms)) },
      { title: "Cause", cell: ({ cause }) => html`<${Cause} of=${cause} />` },
      { title: "Held by", cell: ({ held_by: id }) => id && html`<a class="id" href=${link(["topics", ns, topic, "messages", id], { group })}>${id}</a>` }]} /></section>`;
}
