// Pages of a list that the broker ends after some work: asked for until there is a page to show.
import { get } from "./api.js";

const ASKED_MAX = 20;

/**
 * One page of at most `limit` messages behind a cursor. An empty page with a cursor means that the
 * broker has searched for 50 ms and found nothing yet.
 * @param {(message: any) => boolean} [wanted] chooses among the messages; all, if absent
 * @returns {Promise<{messages: any[], cursor: string | null, now_ms: any, whole: boolean}>}
 *   `whole`: false if it gave up before the page was full; the cursor goes on from there
 */
export async function fill(path, query, limit, signal, wanted) {
  const messages = [];
  let { cursor = "" } = query;
  for (let asked = 0; asked < ASKED_MAX; asked += 1) {
    const page = await get(path, { ...query, cursor, limit: wanted ? limit : limit - messages.length }, signal);
    messages.push(...(wanted ? page.messages.filter(wanted) : page.messages));
    cursor = page.cursor;
    if (cursor === null || messages.length >= limit) {
      return { messages, cursor, now_ms: page.now_ms, whole: true };
    }
  }
  return { messages, cursor, whole: false };
}
