// The table of pages: each place in the dashboard, its title, and the keys that lead there.
import { Dead } from "./dead.js";
import { Job, Jobs } from "./jobs.js";
import { Message } from "./message.js";
import { Messages } from "./messages.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { AllTargets, Push } from "./push.js";
import { AllSchedules, Schedules } from "./schedules.js";
import { Topic } from "./topic.js";
import { Topics } from "./topics.js";
import { Claims, Transactions } from "./transactions.js";

/**
 * `menu`: its name in the menu; `keys`: how it is reached by keyboard; `right`: without this right
 * somewhere, nothing on the page can be read.
 */
export const PAGES = [
  { path: "/", title: () => "Overview", view: Overview, menu: "Overview", keys: "g o", right: "dashboard" },
  { path: "/topics", title: () => "Topics", view: Topics, menu: "Topics", keys: "g t", right: "read" },
  { path: "/topics/:ns/:topic", title: ({ topic }) => topic, view: Topic },
  { path: "/topics/:ns/:topic/messages", title: ({ topic }) => `Messages of ${topic}`, view: Messages },
  { path: "/topics/:ns/:topic/messages/:id", title: ({ id }) => id, view: Message },
  { path: "/topics/:ns/:topic/dead", title: ({ topic }) => `Dead letters of ${topic}`, view: Dead },
  { path: "/topics/:ns/:topic/schedules", title: ({ topic }) => `Schedules of ${topic}`, view: Schedules },
  { path: "/topics/:ns/:topic/push", title: ({ topic }) => `Push targets of ${topic}`, view: Push },
  { path: "/topics/:ns/:topic/claims", title: ({ topic }) => `Claims of ${topic}`, view: Claims },
  { path: "/schedules", title: () => "Schedules", view: AllSchedules, menu: "Schedules", keys: "g s", right: "read" },
  { path: "/push", title: () => "Push targets", view: AllTargets, menu: "Push", keys: "g p", right: "admin" },
  { path: "/jobs", title: () => "Jobs", view: Jobs, menu: "Jobs", keys: "g j", right: "read" },
  { path: "/jobs/:job", title: ({ job }) => `Job ${job}`, view: Job },
  { path: "/transactions", title: () => "Transactions", view: Transactions, menu: "Transactions", keys: "g x", right: "read" },
  { path: "/nodes", title: () => "Nodes", view: Nodes, menu: "Nodes", keys: "g n" },
];
