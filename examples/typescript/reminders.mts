import createClient from "openapi-fetch";
import type { paths } from "./delaylog.mjs";

const client = createClient<paths, "application/json" | "application/problem+json">({
  baseUrl: process.env.DELAYLOG_URL ?? "http://127.0.0.1:8711",
});
const params = { path: { topic: "reminders" } };

const sent = await client.POST("/v1/topics/{topic}/messages", {
  params,
  body: { body: "pay the rent", id: "rent", delay_ms: 100 },
});
if (sent.error) throw new Error(sent.error.detail);
if ("result" in sent.data) console.log(sent.data.result);

const received = await client.POST("/v1/topics/{topic}/receive", {
  params,
  body: { max: 10, wait_ms: 5_000 },
});
if (received.error) throw new Error(received.error.detail);
const { messages } = received.data;
for (const message of messages) console.log(message.id, message.body);

const settled = await client.POST("/v1/topics/{topic}/ack", {
  params,
  body: { receipts: messages.map((message) => message.receipt) },
});
console.log(settled.data?.results);
