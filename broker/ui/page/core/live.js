// Data that stays fresh: asked for again while somebody looks, and never otherwise. A hidden tab, a
// paused dashboard and a page that is not open cost the broker nothing.
import { useCallback, useEffect, useRef, useState } from "./view.js";

const EVERY_MS = 2_000;
/** A slow answer is asked for less often: at most this share of the time is spent on it. */
const SHARE = 0.2;

const REFUSED = new Set([400, 401, 403, 404]);

const state = { on: true, listeners: new Set() };

export const isLive = () => state.on;

/** Stop or start asking. Starting asks at once; a page that was stopped stays as it was read. */
export function setLive(on) {
  state.on = on;
  for (const tell of state.listeners) tell();
}

/** Whether the dashboard is live; drawn again when that changes. */
export function useIsLive() {
  const [on, setOn] = useState(state.on);
  useEffect(() => listen(() => setOn(state.on)), []);
  return on;
}

function listen(tell) {
  state.listeners.add(tell);
  return () => void state.listeners.delete(tell);
}

/**
 * What `ask` answers, again and again while the page is visible and live.
 * @param {any[]} deps ask at once when one of them changes
 */
export function useLive(ask, deps, { everyMs = EVERY_MS } = {}) {
  const [found, setFound] = useState({ data: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    const ended = new AbortController();
    let timer = null;
    let asking = false;
    let first = true;
    setFound({ data: null, error: null });

    const look = async (asked = false) => {
      clearTimeout(timer);
      timer = null;
      if (asking || ended.signal.aborted) return;
      if (!first && !asked && (document.hidden || !state.on)) return;
      first = false;
      asking = true;
      const began = performance.now();
      try {
        const data = await ask(ended.signal);
        if (!ended.signal.aborted) setFound({ data, error: null });
      } catch (error) {
        if (ended.signal.aborted) return;
        setFound((old) => ({ data: old.data, error }));
        // What is refused stays refused; what was not reached may come back.
        if (REFUSED.has(error.status)) return;
      } finally {
        asking = false;
      }
      const tookMs = performance.now() - began;
      timer = setTimeout(look, Math.max(everyMs, tookMs / SHARE));
    };

    const seen = () => {
      if (!document.hidden && state.on && timer === null) look();
    };
    again.current = () => void look(true);
    const unlisten = listen(seen);
    document.addEventListener("visibilitychange", seen);
    look();
    return () => {
      ended.abort();
      clearTimeout(timer);
      unlisten();
      document.removeEventListener("visibilitychange", seen);
    };
  }, deps);
  return { ...found, refresh: useCallback(() => again.current(), []) };
}
