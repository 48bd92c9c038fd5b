// What a producer of BullMQ relies on: `node bullmq_checks.cjs CHECK` ends with status 0.

const assert = require("node:assert/strict");
const { setTimeout: sleep } = require("node:timers/promises");
const { FlowProducer, Queue, QueueEvents } = require("bullmq");

const LIMIT_MS = 60_000;
const { hostname: host, port } = new URL(process.env.SERVER_URL);
const sentinels = (process.env.SENTINELS || "").split(" ").filter(Boolean).map((at) => {
  const [host, port] = at.split(":");
  return { host, port: Number(port) };
});
const connection = sentinels.length ? { sentinels, name: "delaylog" } : { host, port: Number(port) };
const queue = new Queue("jobs", { connection });
const events = new QueueEvents("jobs", { connection });
const result = (job) => job.waitUntilFinished(events, LIMIT_MS);

const checks = {
  async one(a, b) {
    await queue.add("add", { a, b });
  },

  async priorities() {
    await queue.addBulk(
      [9, 1, 5].map((priority) => ({
        name: "add",
        data: { a: priority, b: 0 },
        opts: { priority },
      })),
    );
    assert.equal((await queue.getJobCounts("prioritized")).prioritized, 3);
  },

  async results() {
    const jobs = await Promise.all([1, 2, 3].map((a) => queue.add("add", { a, b: 1 })));
    assert.deepEqual(await Promise.all(jobs.map(result)), [2, 3, 4]);
    const failing = await queue.add("fail", {});
    await assert.rejects(result(failing), /this job fails/);
    assert.equal(await failing.getState(), "failed");
    assert.equal(await queue.getCompletedCount(), 3);
  },

  async delays() {
    const far = await queue.add("add", { a: 3, b: 0 }, { delay: 3_600_000, jobId: "far" });
    await queue.add("add", { a: 4, b: 0 }, { delay: 3_600_000, jobId: "far" });
    assert.equal(await far.getState(), "delayed");
    assert.equal(await queue.getDelayedCount(), 1);
    const last = await queue.add("add", { a: 2, b: 0 }, { delay: 2_000 });
    const first = await queue.add("add", { a: 1, b: 0 }, { delay: 1_000 });
    assert.deepEqual([await result(first), await result(last)], [1, 2]);
    await far.remove();
    assert.equal(await queue.getDelayedCount(), 0);
  },

  async retries() {
    const options = { attempts: 2, backoff: { type: "fixed", delay: 1_000 } };
    assert.equal(await result(await queue.add("failOnce", {}, options)), "second try");
  },

  async flows() {
    const flow = await new FlowProducer({ connection }).add({
      name: "sum",
      queueName: "jobs",
      children: [1, 2].map((a) => ({ name: "add", queueName: "jobs", data: { a, b: 30 } })),
    });
    assert.equal(await result(flow.job), 63);
  },

  async schedulers() {
    const job = { name: "add", data: { a: 0, b: 0 } };
    await queue.upsertJobScheduler("each-second", { every: 1_000 }, job);
    const until = Date.now() + LIMIT_MS;
    while ((await queue.getCompletedCount()) < 3) {
      assert.ok(Date.now() < until, "the third run never came");
      await sleep(100);
    }
    assert.equal(await queue.removeJobScheduler("each-second"), true);
  },

  async stalled() {
    await queue.add("slow", { seconds: 4 }, { jobId: "one" });
  },

  async stalledResult() {
    assert.equal(await result(await queue.getJob("one")), "done");
  },
};

async function main() {
  await events.waitUntilReady();
  await checks[process.argv[2]](...process.argv.slice(3).map(Number));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
