// What pages are made of: one place to import it from.
export { get, post, topicPath } from "../core/api.js";
export { parse, write } from "../core/json.js";
export { useLive } from "../core/live.js";
export { change, go, link } from "../core/router.js";
export { useApp } from "../core/session.js";
export { brokerNow, length, noteNow, parseTime, relative, stamp, ZONE } from "../core/time.js";
export { html, useEffect, useRef, useState } from "../core/view.js";
export { Ask, Choice, Dialog, DueField, Field } from "./dialog.js";
export { Failure, Loaded } from "./failure.js";
export { counted, Facts, Pager, Table, timed } from "./table.js";
export { bytes, Copy, Counts, number, State, STATES, Tag, Time } from "./values.js";
