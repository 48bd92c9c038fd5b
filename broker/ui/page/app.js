// The dashboard: finds out who looks, finds the page of the link, and draws it in its frame.
import { html, render, useEffect, useErrorBoundary, useMemo, useRef, useState } from "./core/view.js";
import { forgetCalls, get, onUnauthorized, setLocal } from "./core/api.js";
import { bind } from "./core/keys.js";
import { isLive, setLive, useLive } from "./core/live.js";
import { find, go, useHere } from "./core/router.js";
import { App, load, logOut } from "./core/session.js";
import { isUtc, noteNow, setUtc } from "./core/time.js";
import { LogIn } from "./pages/login.js";
import { clusterOf } from "./pages/nodes.js";
import { PAGES } from "./pages/table.js";
import { Failure } from "./parts/failure.js";
import { Calls, Clock, Help, Live, Menu } from "./parts/frame.js";
import { OfTopic } from "./parts/topic-head.js";

const SAID_MS = 8_000;

function Dashboard() {
  const [session, setSession] = useState(null);
  const [error, setError] = useState(null);
  const enter = async () => {
    try {
      setSession(await load());
      setError(null);
    } catch (problem) {
      setError(problem);
    }
  };
  useEffect(() => {
    onUnauthorized(() => {
      setSession(null);
      setError({ status: 401 });
    });
    enter();
  }, []);
  const [broken] = useErrorBoundary((problem) => console.error(problem));
  if (broken) return html`<main id="main"><h1>The dashboard failed</h1><${Failure} error=${broken} /></main>`;
  if (error?.status === 401) {
    return html`<${LogIn} onDone=${(found) => { setError(null); setSession(found); }} />`;
  }
  if (error) return html`<main id="main"><h1>delaylog</h1><${Failure} error=${error} /><button type="button" onClick=${enter}>Try again</button></main>`;
  if (!session) return html`<p class="boot">Loading…</p>`;
  return html`<${Inside} session=${session} onLeft=${enter} />`;
}

function Inside({ session, onLeft }) {
  const { path, query } = useHere();
  const [dialog, setDialog] = useState(null);
  const [said, setSaid] = useState("");
  const main = useRef(null);
  const cluster = useLive((signal) => clusterOf(session, signal), [session]);
  const follows = cluster.data != null && cluster.data.role !== "leader";
  setLocal(follows);
  const last = useRef(null);
  const clock = useLive(async (signal) => {
    const found = await get("/v1/clock", {}, signal);
    // An embedded broker's clock may stand still.
    noteNow(found.now_ms, last.current === found.now_ms);
    last.current = found.now_ms;
    return found;
  }, [follows]);
  const hold = useLive((signal) => get("/v1/hold", {}, signal), [follows]);
  const place = useMemo(() => {
    // Before the page makes its first calls.
    forgetCalls();
    return find(PAGES, path === "/" && !session.maySomewhere("dashboard") ? "/topics" : path);
  }, [path, session]);
  const title = place ? place.page.title(place.names) : "Not found";
  const app = useMemo(() => ({
    session, follows, say: setSaid, show: (make) => setDialog(() => make),
  }), [session, follows]);

  useEffect(() => {
    document.title = `${title} · delaylog`;
    setDialog(null);
    // Screen readers begin at the new page, keys scroll it.
    main.current?.querySelector("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [path]);
  useEffect(() => {
    const timer = setTimeout(() => setSaid(""), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  useEffect(() => keysOf(app), [app]);

  const close = () => setDialog(null);
  return html`<${App.Provider} value=${app}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.querySelector("h1")?.focus(); }}>Skip to the page</a>
    <header><a class="logo" href="#/">delaylog</a><${Menu} pages=${PAGES} at=${path} session=${session} />
      <div class="switches"><${Live} /><${Clock} clock=${clock.data} />
        <button type="button" aria-label="Keys" title="Keys (?)" onClick=${() => app.show((end) => html`<${Help} onClose=${end} />`)}>?</button>
        ${session.principal && html`<span class="who">${session.principal}</span>`}
        ${session.hasCookie && html`<button type="button" onClick=${async () => { await logOut(); onLeft(); }}>Log out</button>`}</div></header>
    ${follows && html`<p class=${`banner ${cluster.data.leader ? "" : "bad"}`} role="note">${cluster.data.leader
      ? html`This node, ${cluster.data.name}, follows: it shows what it has applied, and changes nothing.
      <a href=${`${cluster.data.leader.http}/ui/${location.hash}`}>Open the dashboard of the leader, ${cluster.data.leader.name}</a>`
      : `No leader: ${cluster.data.not_ready}`}</p>`}
    ${clock.error?.status === 0 && html`<p class="banner bad" role="alert">The broker does not answer. What is shown may be old.</p>`}
    ${hold.data?.held && html`<p class="banner bad" role="alert">The broker is held: ${hold.data.due} messages, ${hold.data.firings} firings wait. ${hold.data.note}</p>`}
    <main id="main" ref=${main}><${Page} key=${path} place=${place} query=${query} /></main>
    <div class="toast" role="status" aria-live="polite">${said}</div>
    <footer><${Calls} key=${path} needsToken=${session.principal !== null} /></footer>
    ${dialog && dialog(close)}</${App.Provider}>`;
}

function Page({ place, query }) {
  const [error] = useErrorBoundary((problem) => console.error(problem));
  if (error) return html`<h1 tabindex="-1">This page failed</h1><${Failure} error=${error} />`;
  if (!place) return html`<h1 tabindex="-1">There is no such page</h1><p><a href="#/">To the start</a></p>`;
  return html`<${place.names.topic ? OfTopic : place.page.view} place=${place} names=${place.names} query=${query} />`;
}

/** Bind the keys. Returns a function that unbinds them. */
function keysOf(app) {
  const search = () => document.querySelector("[role=search] input")?.focus();
  const bound = [
    bind("?", "show this help", () => app.show((end) => html`<${Help} onClose=${end} />`)),
    bind("/", "search", search),
    bind("l", "live or paused", () => setLive(!isLive())),
    bind("z", "local time or UTC", () => setUtc(!isUtc())),
    ...PAGES.filter(({ keys }) => keys).map(({ keys, menu, path }) => bind(keys, menu, () => go(`#${path}`))),
  ];
  return () => bound.forEach((unbind) => unbind());
}

render(html`<${Dashboard} />`, document.getElementById("app"));
