// Deep links: the place is behind `#`, so the broker needs no routes for pages.
import { withQuery } from "./api.js";
import { useEffect, useState } from "./view.js";

/** @returns {{path: string, query: Record<string, string>}} */
export function here() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", query: Object.fromEntries(new URLSearchParams(query)) };
}

/** The link to a place; parts of the path are encoded, empty members of the query left out. */
export function link(parts, query = {}) {
  const path = parts.map((part) => `/${encodeURIComponent(part)}`).join("") || "/";
  return `#${withQuery(path, query)}`;
}

/** Go to a link; `replace`: without an entry in the history. */
export function go(to, { replace = false } = {}) {
  if (replace) location.replace(to);
  else location.assign(to);
}

/** Change members of the query of this place. */
export function change(members, { replace = true } = {}) {
  const { path, query } = here();
  const parts = path.split("/").filter(Boolean).map(decoded);
  go(link(parts, { ...query, ...members }), { replace });
}

/** A part of a path as text; one with a malformed escape stands for itself. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The page of a path and the names in it, by patterns such as `/topics/:ns/:topic`. */
export function find(pages, path) {
  const parts = path.split("/").filter(Boolean);
  for (const page of pages) {
    const wanted = page.path.split("/").filter(Boolean);
    if (wanted.length !== parts.length) continue;
    const names = {};
    const fits = wanted.every((want, at) => {
      if (!want.startsWith(":")) return want === parts[at];
      names[want.slice(1)] = decoded(parts[at]);
      return true;
    });
    if (fits) return { page, names };
  }
  return null;
}

/** The present place; the component is drawn again when it changes. */
export function useHere() {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const moved = () => setPlace(here());
    addEventListener("hashchange", moved);
    // It may have changed since the first drawing.
    moved();
    return () => removeEventListener("hashchange", moved);
  }, []);
  return place;
}
