// Calls of the broker's public API, as any other client makes them.
import { parse, write } from "./json.js";

/** A refusal of the broker, or a failure to reach it. */
export class Refusal extends Error {
  /** @param {number} status 0: the broker was not reached */
  constructor(status, code, detail, members = {}) {
    super(detail);
    Object.assign(this, { status, code, detail, members });
  }
}

const CALLS_KEPT = 12;
const state = { csrf: null, local: false, calls: [], changed: () => {}, onUnauthorized: () => {} };

/** The CSRF token of the session; null without a session. */
export const setCsrf = (csrf) => void (state.csrf = csrf);
/** Whether this node follows: it only answers reads, from its own state. */
export const setLocal = (local) => void (state.local = local);
export const onUnauthorized = (act) => void (state.onUnauthorized = act);

/** The calls of the page, newest first. */
export const calls = () => state.calls;
export const forgetCalls = () => void (state.calls = []);
export const onCalls = (act) => void (state.changed = act);

/** Browsers remove dots from paths: a call about the message `..` would be about its topic. */
function part(name) {
  if (/^\.\.?$/.test(name)) throw new Refusal(400, "", `Use the command delaylog for ${name}.`);
  return encodeURIComponent(name);
}

/** The path of topics, a topic, or what is below. */
export const topicPath = (ns, topic, ...rest) =>
  [ns === "default" ? "/v1" : `/v1/ns/${part(ns)}`, "topics",
    ...[topic, ...rest].filter((each) => each != null).map(part)].join("/");

/** A path with its query, without members that are null or empty. */
export function withQuery(path, query = {}) {
  const given = Object.entries(query).filter(([, each]) => each != null && each !== "");
  const text = `${new URLSearchParams(given)}`;
  return text ? `${path}?${text}` : path;
}

const readOf = (path, query) =>
  withQuery(path, state.local && !/^\/v1\/(cluster|session)/.test(path) ? { ...query, read: "local" } : query);

/**
 * Make a call. Raises a Refusal.
 * @param {{query?: object, body?: any, token?: string, signal?: AbortSignal}} [more]
 */
export async function call(method, path, { query, body, token, signal } = {}) {
  const url = method === "GET" ? readOf(path, query) : withQuery(path, query);
  const text = body === undefined ? undefined : write(body);
  remember(method, url, text);
  const headers = { Accept: "application/json, text/plain;q=0.5" };
  if (text !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  else if (state.csrf && method !== "GET") headers["Delaylog-CSRF"] = state.csrf;
  let answer;
  try {
    answer = await fetch(url, { method, headers, body: text, signal, redirect: "manual" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "unreachable", "The broker does not answer. Is it running?");
  }
  if (answer.type === "opaqueredirect") {
    throw new Refusal(307, "moved", "Another node leads: open its dashboard to change something.");
  }
  const said = await answer.text();
  if (answer.ok) {
    const json = answer.headers.get("Content-Type")?.includes("json");
    return json ? parse(said) : said;
  }
  const problem = documentOf(said);
  if (answer.status === 401 && !token) state.onUnauthorized();
  throw new Refusal(
    answer.status, problem.code ?? "", problem.detail ?? `HTTP status ${answer.status}`, problem);
}

function documentOf(text) {
  try {
    return parse(text);
  } catch {
    return {};
  }
}

/** Answers and refusals that are shown live, by URL; promises of those that are asked for, so that a late
 *  one replaces none that the stream has told since. */
export const told = new Map();

/** Read. What `useLive` reads, with a signal that has `reads`, is noted there and in `told`. */
export async function get(path, query, signal) {
  if (!signal?.reads) return call("GET", path, { query, signal });
  const url = readOf(path, query);
  signal.reads.add(url);
  if (!told.has(url)) {
    const asked = call("GET", path, { query }).catch((error) => {
      if (error.status) return error;
      if (told.get(url) === asked) told.delete(url);
      throw error;
    });
    told.set(url, asked);
  }
  const found = await told.get(url);
  if (found instanceof Refusal) throw found;
  return found;
}

export const post = (path, body = {}, query) => call("POST", path, { body, query });

function remember(method, url, body) {
  const known = state.calls.filter((each) => each.method !== method || each.url !== url);
  state.calls = [{ method, url, body }, ...known].slice(0, CALLS_KEPT);
  state.changed();
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The call as a command line for curl, which reads the token from the environment. */
export function curlOf({ method, url, body }, needsToken) {
  const words = ["curl"];
  if (method !== "GET" && !(method === "POST" && body)) words.push("-X", method);
  if (needsToken) words.push("-H", '"Authorization: Bearer $DELAYLOG_TOKEN"');
  if (body) words.push("--json", quoted(body));
  return [...words, quoted(location.origin + url)].join(" ");
}
