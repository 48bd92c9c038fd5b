// The life of a message, drawn as a line.
import { html } from "../core/view.js";
import { brokerNow, length } from "../core/time.js";
import { longest } from "./late.js";
import { Time } from "./values.js";

/** The mark of each step. What has none is a dot. */
const MARKS = {
  sent: "+", ready: "▶", leased: "⇄", lease_extended: "⇥", nacked: "↩", lease_expired: "⌛",
  rescheduled: "↷", replayed: "↻", acked: "✓", expired: "⌛", dead: "✕", cancelled: "⌫", replaced: "⇆", due: "◷",
};
const HELD = new Set(["leased", "lease_extended", "begun"]);
const BAD = new Set(["nacked", "lease_expired", "expired", "dead"]);
const WIDTH = 900;
const HEIGHT = 84;
const SIDE = 24;

/** What a step tells besides its time. Times among the details are drawn as times. */
function details({ event, at_ms, ...rest }) {
  return Object.entries(rest).filter(([, value]) => value != null).map(([name, value]) => html`<span class="detail" key=${name}>${
    name.replace(/_ms$/, "").replaceAll("_", " ")} ${
    name.endsWith("_ms") ? html`<${Time} ms=${value} />` : html`<b>${value}</b>`}</span>`);
}

/**
 * Positions along the line. Waits differ by factors of a million, so lengths are drawn by their
 * logarithm: each step keeps room for its mark, and a longer wait is always drawn longer.
 */
function positions(steps) {
  const gaps = steps.slice(1).map((step, at) =>
    Math.log10(2 + Math.max(Number(step.at_ms) - Number(steps[at].at_ms), 0)));
  const total = gaps.reduce((sum, each) => sum + each, 0) || 1;
  let x = SIDE;
  return [x, ...gaps.map((gap) => (x += (gap / total) * (WIDTH - 2 * SIDE)))];
}

/** `waits`: as the broker tells them; `lives`: the message has not ended, so its line goes on. */
export function LifeLine({ steps, waits, complete, lives }) {
  const timed = steps.filter((step) => step.at_ms != null);
  // Only a due time is still to come.
  const to = timed.length - (timed.at(-1)?.event === "due");
  if (lives) timed.splice(to, 0, { event: "now", at_ms: brokerNow() });
  const at = positions(timed);
  const y = HEIGHT / 2;
  const summary = timed.map((step) => step.event.replaceAll("_", " ")).join(", then ");
  return html`<div class="life" role="region" aria-label="Life line" tabindex="0">
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Life line: ${summary}`}>
      ${timed.slice(1).map((step, i) => {
        const { event, at_ms: from } = timed[i];
        const held = HELD.has(event);
        const wide = at[i + 1] - at[i];
        const x = at[i] + wide / 2;
        return html`<g key=${i}>
          <line x1=${at[i]} x2=${at[i + 1]} y1=${y} y2=${y} class=${held ? "held" : "wait"} />
          ${wide > 64 && html`<text x=${x} y=${y - 14}>${length(Number(step.at_ms) - Number(from))}</text>`}
          ${wide > 90 && event === "ready" && html`<text x=${x} y=${y - 30}>${longest(waits, from, step.at_ms)}</text>`}</g>`;
      })}
      ${timed.map((step, i) => html`<g key=${i} class=${BAD.has(step.event) ? "bad" : "step"}>
        <circle cx=${at[i]} cy=${y} r="11" /><text x=${at[i]} y=${y + 4}>${
          MARKS[step.event] ?? "•"}</text>
        <text x=${at[i]} y=${y + 30}>${
          i === 0 || at[i] - at[i - 1] > 40 ? step.event.replaceAll("_", " ") : ""}</text></g>`)}
    </svg>
    <p class="quiet">A dashed line is a wait, with its longest cause, a solid one a lease. Lengths are drawn by their logarithm.</p>
    ${complete === false && html`<p role="note">Older steps are no longer in the log.</p>`}
    <${Steps} of=${steps} /></div>`;
}

/** Steps as a list. */
export const Steps = ({ of }) => html`<ol class="steps">${of.map((step, i) => html`<li key=${i}>
  <span class="mark" aria-hidden="true">${MARKS[step.event] ?? "•"}</span>
  <strong>${step.event.replaceAll("_", " ")}</strong> <${Time} ms=${step.at_ms} /> ${details(step)}</li>`)}</ol>`;
