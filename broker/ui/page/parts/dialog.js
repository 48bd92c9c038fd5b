// Dialogs: a change is described, its call can be copied, and only then it is made.
import { html, useEffect, useRef, useState } from "../core/view.js";
import { call, curlOf } from "../core/api.js";
import { write } from "../core/json.js";
import { useApp } from "../core/session.js";
import { Copy } from "./values.js";
import { Failure } from "./failure.js";

export function Dialog({ title, onClose, children }) {
  const own = useRef(null);
  useEffect(() => {
    const dialog = own.current;
    dialog.showModal();
    dialog.addEventListener("close", onClose);
    return () => {
      dialog.removeEventListener("close", onClose);
      // This gives the focus back to what opened it.
      dialog.close();
    };
  }, []);
  return html`<dialog ref=${own} aria-labelledby="dialog-title">
    <h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}

/**
 * A dialog around one call.
 * @param {{title: string, verb: string, danger?: boolean, request: () => {method: string,
 *   path: string, body?: any} | null, done: string | ((answer: any) => string),
 *   onClose: () => void, onDone?: (answer: any) => void}} props `request` is null while the input is
 *   not complete; it may raise an Error that says what is wrong. `done` is said after the call.
 */
export function Ask({ title, verb, danger, request, done, onClose, onDone, children }) {
  const { session, say } = useApp();
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  let wanted = null;
  let wrong = null;
  try {
    wanted = request();
  } catch (problem) {
    wrong = problem.message;
  }
  const submit = async (event) => {
    event.preventDefault();
    if (!wanted || busy) return;
    setBusy(true);
    setError(null);
    try {
      const answer = await call(wanted.method, wanted.path, { body: wanted.body });
      onClose();
      say(typeof done === "function" ? done(answer) : done);
      onDone?.(answer);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const body = wanted?.body === undefined ? undefined : write(wanted.body);
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${submit}>${children}
    ${wrong && html`<p class="wrong" role="status">${wrong}</p>`}
    <${Failure} error=${error} />
    <div class="buttons">
      <button type="submit" class=${danger ? "danger" : "main"} disabled=${!wanted || busy}>${verb}</button>
      <button type="button" onClick=${onClose}>Close</button>
      ${wanted && html`<${Copy} label="Copy as curl"
        text=${curlOf({ method: wanted.method, url: wanted.path, body }, session.principal !== null)} />`}
    </div></form></${Dialog}>`;
}

/** A labelled input. */
export function Field({ label, help, type = "text", value, onInput, ...more }) {
  const id = `field-${label.toLowerCase().replace(/\W+/g, "-")}`;
  return html`<div class="field"><label for=${id}>${label}</label>
    ${type === "area"
      ? html`<textarea id=${id} value=${value} onInput=${(event) => onInput(event.target.value)} ...${more}></textarea>`
      : html`<input id=${id} type=${type} value=${value} autocomplete="off" spellcheck="false"
          onInput=${(event) => onInput(event.target.value)} ...${more} />`}
    ${help && html`<small>${help}</small>`}</div>`;
}

/** A field for a due time, which `parseTime` reads. */
export const DueField = ({ label = "Due", value, onInput }) => html`<${Field} label=${label} value=${value}
  onInput=${onInput} help="now, +90s, +2h, or 2026-11-26 09:00" />`;

/** A labelled choice among words. */
export function Choice({ label, value, options, onInput }) {
  const id = `choice-${label.toLowerCase().replace(/\W+/g, "-")}`;
  return html`<div class="field"><label for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(event) => onInput(event.target.value)}>${options.map((each) => {
      const [word, text] = Array.isArray(each) ? each : [each, each];
      return html`<option key=${word} value=${word} selected=${word === value}>${text}</option>`;
    })}</select></div>`;
}
