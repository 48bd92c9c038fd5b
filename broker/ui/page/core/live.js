// Data that stays fresh by one stream of events, which is open only while somebody looks.
import { told } from "./api.js";
import { parse } from "./json.js";
import { useEffect, useRef, useState } from "./view.js";

const RETRY_MS = 2_000;
/** Reads that pages begin within this time share a stream. */
const GATHER_MS = 50;

const state = { on: true, changed: () => {}, shown: new Set(), key: "", stream: null, timer: null };

export const isLive = () => state.on;

/** Switch live updates on, which reads at once, or off. */
export function setLive(on) {
  state.on = on;
  state.changed(on);
  begin();
}

/** Whether the dashboard is live; for its one switch, which is drawn again on a change. */
export function useIsLive() {
  const [on, setOn] = useState(state.on);
  state.changed = setOn;
  return on;
}

const seen = () => state.on && !document.hidden;
const lookAll = () => state.shown.forEach(({ look }) => look());

/** Read all that is shown and open a new stream; if nobody looks, close the stream. */
function begin() {
  state.key = "";
  told.clear();
  if (seen()) lookAll();
  follow();
}

document.addEventListener("visibilitychange", begin);

/** Open a new stream if the reads of what is shown have changed. */
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
      // The stream does not say why it refuses a read: the next look makes the call.
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
    let missed = false;
    const mine = { reads: [], look };
    setFound({ data: null, error: null });

    async function look() {
      // What arrives meanwhile is looked at afterwards.
      missed = asking;
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
      if (signal.aborted) return;
      follow();
      if (missed) look();
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
