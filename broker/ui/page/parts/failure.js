// What a page shows while it waits for an answer, and when it gets a refusal.
import { html } from "../core/view.js";

const MEANT = {
  403: "You lack a right for this.",
  404: "There is nothing here.",
  429: "Too many calls for now.",
  503: "The broker is not ready.",
};

export function Failure({ error }) {
  if (!error) return null;
  const right = error.members?.right;
  return html`<div class="failure" role="alert"><strong>${MEANT[error.status] ?? "This did not work."}</strong>
    <span> ${error.detail ?? error.message}</span>${right && html`<span> (right: ${right})</span>`}</div>`;
}

/** The content once there is data, and the error beside what was read before. */
export function Loaded({ of: { data, error }, children }) {
  if (data == null && !error) return html`<p role="status">Reading…</p>`;
  return html`<${Failure} error=${error} />${data != null && children(data)}`;
}
