// Times of the broker, which has a clock of its own: that of an embedded broker may stand still or
// jump by days. Shown in the viewer's zone or in UTC.
import { parse } from "./json.js";
import { useEffect, useState } from "./view.js";

const KEY = "delaylog-zone";
const listeners = new Set();
const state = { utc: localStorage.getItem(KEY) === "utc", nowMs: Date.now(), seenMs: Date.now() };

/** The viewer's zone, such as Europe/Berlin. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
export const isUtc = () => state.utc;

export function setUtc(utc) {
  state.utc = utc;
  localStorage.setItem(KEY, utc ? "utc" : "local");
  for (const tell of listeners) tell();
}

/** Draw again when the zone is switched. */
export function useZone() {
  const [utc, set] = useState(state.utc);
  useEffect(() => {
    const tell = () => set(state.utc);
    listeners.add(tell);
    return () => void listeners.delete(tell);
  }, []);
  return utc;
}

/** Note the broker's time in an answer; `stands`: it moves only when a program moves it. */
export function noteNow(nowMs, stands = false) {
  Object.assign(state, { nowMs: Number(nowMs), seenMs: stands ? null : Date.now() });
}

/** The broker's time in ms. */
export const brokerNow = () =>
  state.seenMs === null ? state.nowMs : state.nowMs + (Date.now() - state.seenMs);

const pad = (value, digits = 2) => `${value}`.padStart(digits, "0");

/** A time in ms as 2026-11-26 09:00:00.000, in one zone. */
export function stamp(ms, { utc = state.utc } = {}) {
  const at = new Date(Number(ms));
  if (Number.isNaN(at.getTime())) return `${ms}`;
  if (utc) return at.toISOString().replace("T", " ").replace("Z", "");
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map((each) => pad(each));
  return `${day} ${clock.join(":")}.${pad(at.getMilliseconds(), 3)}`;
}

const UNITS = [
  ["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000], ["ms", 1],
];

/** A length in ms in its two largest units: 3 h 5 min. */
export function length(ms) {
  let left = Math.abs(Math.round(Number(ms)));
  if (left === 0) return "0 ms";
  const words = [];
  for (const [name, size] of UNITS) {
    const count = Math.floor(left / size);
    if (count) words.push(`${count} ${name}`);
    else if (words.length) break;
    left -= count * size;
    // Milliseconds say nothing beside minutes.
    if (words.length === 2 || (words.length && size <= 60_000 && size > 1_000)) break;
  }
  return words.join(" ");
}

/** A time relative to the broker's: in 3 min, 4 s ago. */
export function relative(ms) {
  const gap = Number(ms) - brokerNow();
  if (Math.abs(gap) < 1_000) return "now";
  const seconds = Math.round(gap / 1_000) * 1_000;
  return gap > 0 ? `in ${length(seconds)}` : `${length(seconds)} ago`;
}

/** What a person types, such as `+90s` or a date in the present zone; in ms, with all digits. */
export function parseTime(text) {
  const word = text.trim();
  if (!word) return null;
  if (word === "now") return Math.round(brokerNow());
  const step = /^([+-])\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)$/.exec(word);
  if (step) {
    const unit = UNITS.find(([name]) => name === (step[3] === "m" ? "min" : step[3]));
    return Math.round(brokerNow() + Number(`${step[1]}1`) * Number(step[2]) * unit[1]);
  }
  if (/^[1-9]\d{11,18}$/.test(word)) return parse(word);
  // Browsers read `5` as a day of 2001.
  const [, day, time = "T00:00", zone = state.utc ? "Z" : ""] =
    /^(\d{4}(?:-\d\d){2})([ T]\d\d:\d\d[^Z+-]*)?(Z|[+-]\d\d:\d\d)?$/.exec(word) ?? [];
  const at = new Date(day + time.replace(" ", "T") + zone);
  if (Number.isNaN(at.getTime())) {
    throw new Error(`${word} is no time: write 2026-11-26 09:00, +90s, -2h, or now`);
  }
  return at.getTime();
}
