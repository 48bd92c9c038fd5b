// JSON that keeps every digit. JavaScript's numbers are exact up to 2^53 only, and times, log
// positions and numbers in message bodies may be larger.

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
/** Marks a large integer on its way through JSON; no text of others begins so. */
const MARK = `${Math.random()} `;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");

const exact = (digits) => (Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits));

/** Parse JSON; integers beyond 2^53 become BigInt. */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  let inside = false;
  const marked = text.replace(/\\.|"|[\d.eE+-]{16,}/g, (part) => {
    if (part === '"') inside = !inside;
    return !inside && /^-?\d+$/.test(part) ? `"${MARK}${part}"` : part;
  });
  return JSON.parse(marked, (_key, value) =>
    (typeof value === "string" && value.startsWith(MARK) ? exact(value.slice(MARK.length)) : value));
}

/** The JSON of a value that may contain BigInt. */
export const write = (value) => JSON.stringify(
  value, (_key, each) => (typeof each === "bigint" ? `${MARK}${each}` : each))?.replace(MARKED, "$1");

/** Indent a JSON text; null if it is none. Numbers, repeated keys and escapes stay as written. */
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  let last = "";
  const out = [];
  const line = () => out.push("\n", "  ".repeat(depth));
  for (const [token] of text.matchAll(TOKEN)) {
    const closes = token === "}" || token === "]";
    if (closes) {
      depth -= 1;
      if (last !== "{" && last !== "[") line();
    } else if (last === "{" || last === "[") line();
    out.push(token);
    if (token === "{" || token === "[") depth += 1;
    else if (token === ",") line();
    else if (token === ":") out.push(" ");
    last = token;
  }
  return out.join("");
}
