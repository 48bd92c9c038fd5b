// Data that stays fresh: one stream of events tells of all that is shown. It is open only while
// somebody looks: a hidden tab, a paused dashboard and a closed page cost the broker nothing.
import { told } from "./api.js";
import { parse } from "./json.js";
import { useEffect, useRef, useState } from "./view.js";

const RETRY_MS = 2_000;
/** What pages ask for within this time shares a stream. */
const GATHER_MS = 50;

const state = { on: true, changed: () => {}, shown: new Set(), key: "", stream: null, timer: null };

export const isLive = () => state.on;

/** Stop, or start, which reads at once. */
export function setLive(on) {
  state.on = on;
  state.changed(on);
  begin();
}

/** Whether the dashboard is live; its one switch is drawn again when that changes. */
export function useIsLive() {
  const [on, setOn] = useState(state.on);
  state.changed = setOn;
  return on;
}

const seen = () => state.on && !document.hidden;
const lookAll = () => state.shown.forEach(({ look }) => look());

/** Read all that is shown, and have a new stream; or end it if nobody looks. */
function begin() {
  state.key = "";
  told.clear();
  if (seen()) lookAll();
  follow();
}

document.addEventListener("visibilitychange", begin);

/** Have a stream of exactly what is shown. */
function follow() {
  const reads = seen() ? [...new Set([...state.shown].flatMap(({ reads }) => [...reads]))].sort() : [];
  for (const url of told.keys()) if (!reads.includes(url)) told.delete(url);
  const key = `${new URLSearchParams(reads.map((url) => ["read", url]))}`;
  if (key && key === state.key) return;
  state.key = key;
  state.stream?.close();
  clearTimeout(state.timer);
  if (key) state.timer = setTimeout(open, GATHER_MS);
}

function open() {
  const stream = state.stream = new EventSource(`/v1/live?${state.key}`);
  stream.onmessage = ({ data }) => {
    for (const [url, answer] of Object.entries(parse(data))) {
      // A refusal is asked for, which says why.
      if (answer) told.set(url, answer);
      else told.delete(url);
    }
    lookAll();
  };
  stream.onerror = () => {
    stream.close();
    state.timer = setTimeout(begin, RETRY_MS);
  };
}

/**
 * What `ask` answers, and again when the answers of its reads change.
 * @param {any[]} deps ask at once when one of them changes
 */
export function useLive(ask, deps) {
  const [found, setFound] = useState({ data: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    const ended = new AbortController();
    const { signal } = ended;
    let asking = false;
    const mine = { reads: [], look };
    setFound({ data: null, error: null });

    async function look() {
      if (asking) return;
      asking = true;
      signal.reads = new Set();
      try {
        const data = await ask(signal);
        if (!signal.aborted) setFound({ data, error: null });
      } catch (error) {
        if (!signal.aborted) setFound((old) => ({ data: error.status === 404 ? null : old.data, error }));
      }
      asking = false;
      mine.reads = signal.reads;
      if (!signal.aborted) follow();
    }

    again.current = () => {
      mine.reads.forEach((url) => told.delete(url));
      look();
    };
    state.shown.add(mine);
    look();
    return () => {
      ended.abort();
      state.shown.delete(mine);
      follow();
    };
  }, deps);
  return { ...found, refresh: () => again.current() };
}
