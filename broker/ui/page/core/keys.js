// The keyboard: one listener, and the list that the help shows.
const bound = new Map();
let prefix = "";

/** Bind keys such as `r` or `g t` to an action. Returns a function that unbinds them. */
export function bind(keys, doc, act) {
  bound.set(keys, { doc, act });
  return () => void (bound.get(keys)?.act === act && bound.delete(keys));
}

/** All bindings: [keys, what they do]. */
export const bindings = () => [...bound].map(([keys, { doc }]) => [keys, doc]);

addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog[open]");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing) {
    if (event.key === "Escape" && !event.target.closest("dialog")) event.target.blur();
    return;
  }
  const keys = prefix ? `${prefix} ${event.key}` : event.key;
  const found = bound.get(keys);
  prefix = "";
  if (found) {
    event.preventDefault();
    found.act();
  } else if ([...bound.keys()].some((each) => each.startsWith(`${keys} `))) {
    prefix = keys;
  }
});
