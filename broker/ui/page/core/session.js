// Who looks, and what they may do. The broker decides about each call.
import { call, get, setCsrf } from "./api.js";
import { createContext, useContext } from "./view.js";

export const App = createContext(null);

/** What every page may ask for. @returns {{session: Session, show: (dialog: any) => void,
 *   say: (text: string) => void, follows: boolean}} */
export const useApp = () => useContext(App);

const ROLES = {
  producer: ["send"],
  consumer: ["receive"],
  viewer: ["read", "metrics", "dashboard"],
  operator: ["read", "change", "operate", "metrics", "dashboard"],
  admin: ["send", "receive", "read", "bodies", "change", "admin", "operate", "metrics", "dashboard", "redis"],
};

/** Whether a pattern of a grant matches: `*` stands for any text. */
const matches = (pattern, text) =>
  new RegExp(`^${pattern.split("*").map((each) => each.replace(/[\\^$.|?+()[\]{}]/g, "\\$&"))
    .join(".*")}$`, "s").test(text);

/** A grant as the API writes it: `RIGHTS[:NAMESPACE/TOPIC[:GROUP]]`. */
function parseGrant(text) {
  const [words, place = "*/*", group = "*"] = text.split(":");
  const slash = place.lastIndexOf("/");
  const rights = new Set(ROLES[words] ?? words.split(","));
  return { rights, ns: place.slice(0, slash), topic: place.slice(slash + 1), group };
}

export class Session {
  constructor({ principal, grants, csrf, cluster }) {
    this.principal = principal;
    /** Whether the broker is a node of a cluster; a single one knows no call about it. */
    this.inCluster = cluster;
    this.hasCookie = csrf !== null;
    this.grants = grants.map(parseGrant);
  }

  #with(right) {
    return this.grants.filter(({ rights }) => rights.has(right));
  }

  /** Whether the caller may do this to a topic, in one group or in all of them. */
  may(right, ns, topic, group) {
    return this.#with(right).some((grant) =>
      matches(grant.ns, ns) && matches(grant.topic, topic) &&
      (right === "send" || grant.group === "*" || (group != null && matches(grant.group, group))));
  }

  /** Whether the caller has a right on the broker, or on any topic. */
  maySomewhere(right) {
    return this.#with(right).length > 0;
  }
}

/** The session of this browser. Raises a Refusal, with 401 if nobody is logged in. */
export async function load() {
  const found = await get("/v1/session");
  setCsrf(found.csrf);
  return new Session(found);
}

/** Exchange a token for a session, which is in a cookie that no script can read. */
export async function logIn(token) {
  await call("POST", "/v1/session", { body: {}, token });
  return load();
}

export async function logOut() {
  await call("DELETE", "/v1/session");
  setCsrf(null);
}
