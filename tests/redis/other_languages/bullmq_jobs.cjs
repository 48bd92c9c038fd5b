// A worker of BullMQ in a process of its own: `node bullmq_jobs.cjs`, ended by SIGTERM.

const { appendFileSync } = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");
const { Worker } = require("bullmq");

const { hostname: host, port } = new URL(process.env.SERVER_URL);
const sentinels = (process.env.SENTINELS || "").split(" ").filter(Boolean).map((at) => {
  const [host, port] = at.split(":");
  return { host, port: Number(port) };
});
const note = (word) => appendFileSync(process.env.RAN_FILE, `${word} ${Date.now()}\n`);

const tasks = {
  add({ a, b }) {
    note(`add:${a}+${b}`);
    return a + b;
  },
  failOnce(_, job) {
    note("failOnce");
    if (job.attemptsMade === 0) throw new Error("first try");
    return "second try";
  },
  fail() {
    note("fail");
    throw new Error("this job fails");
  },
  async slow({ seconds }) {
    note("slow");
    await sleep(seconds * 1_000);
    return "done";
  },
  async sum(_, job) {
    note("sum");
    return Object.values(await job.getChildrenValues()).reduce((sum, value) => sum + value, 0);
  },
};

const worker = new Worker("jobs", async (job) => tasks[job.name](job.data, job), {
  connection: sentinels.length ? { sentinels, name: "delaylog" } : { host, port: Number(port) },
  concurrency: 1,
  // The job of a killed worker is found when its lock has ended, after half a minute by default.
  lockDuration: 2_000,
  stalledInterval: 1_000,
});
worker.on("ready", () => note("ready"));
worker.on("error", (error) => console.error(error));
process.on("SIGTERM", async () => {
  await worker.close();
  process.exit(0);
});
