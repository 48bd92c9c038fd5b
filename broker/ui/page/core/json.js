// JSON that keeps every digit. JavaScript's numbers are exact up to 2^53 only, and times, log
// positions and numbers in message bodies may be larger.

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
/** Begins the text of a large integer on its way through JSON. No text of others can begin so. */
const MARK = `${Math.random()} `;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");

const exact = (digits) => (Number.isSafeInteger(Number(digits)) ? Number(digits) : BigInt(digits));

/**
 * Parse JSON; integers beyond 2^53 become BigInt.
 * @param {string} text
 */
export function parse(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const marked = text.replace(TOKEN, (token) => (/^-?\d{16,}$/.test(token) ? `"${MARK}${token}"` : token));
  return JSON.parse(marked, (_key, value) =>
    (typeof value === "string" && value.startsWith(MARK) ? exact(value.slice(MARK.length)) : value));
}

/** The JSON of a value that may contain BigInt. */
export const write = (value) => JSON.stringify(
  value, (_key, each) => (typeof each === "bigint" ? `${MARK}${each}` : each))?.replace(MARKED, "$1");

/**
 * Indent a JSON text. Its numbers, repeated keys and escapes stay as they are written.
 * @param {string} text
 * @returns {string | null} null if it is not JSON
 */
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
