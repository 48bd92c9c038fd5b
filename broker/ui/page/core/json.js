// JSON that keeps every digit. JavaScript's numbers are exact up to 2^53 only, and times, log
// positions and numbers in message bodies may be larger.

/**
 * Parse JSON; integers beyond 2^53 become BigInt.
 * @param {string} text
 */
export function parse(text) {
  return JSON.parse(text, (_key, value, context) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    const source = context?.source ?? "";
    return /^-?\d+$/.test(source) ? BigInt(source) : value;
  });
}

/** The JSON of a value that may contain BigInt. */
export function write(value, indent) {
  return JSON.stringify(
    value, (_key, each) => (typeof each === "bigint" ? JSON.rawJSON(`${each}`) : each), indent);
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;

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
