// The Anthropic SDK for Node against a server with the demo model. Usage: anthropic_cases.mjs URL
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { run } from "./harness.mjs";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const weather = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "get_weather", description: "Current weather in a city", input_schema: weather }];
const base = (content, options = {}) => ({
  model: "demo", max_tokens: 200, temperature: 0, thinking: { type: "disabled" }, messages: [{ role: "user", content }], ...options,
});

await run("anthropic (Node)", {
  async answer() {
    const message = await client.messages.create(base("Hello!"));
    assert.equal(message.stop_reason, "end_turn");
    assert.ok(message.content[0].text);
  },
  async stream() {
    const whole = (await client.messages.create(base("Hello!"))).content[0].text;
    assert.equal(await client.messages.stream(base("Hello!")).finalText(), whole);
  },
  async calls() {
    const message = await client.messages.stream(base("What's the weather in Rome and Oslo?", { tools })).finalMessage();
    const calls = message.content.filter((block) => block.type === "tool_use");
    assert.deepEqual(calls.map((call) => call.input), [{ city: "Rome" }, { city: "Oslo" }]);
    assert.equal(message.stop_reason, "tool_use");
  },
  async toolResult() {
    const question = base("What's the weather in Rome?", { tools });
    const first = await client.messages.create(question);
    const call = first.content.find((block) => block.type === "tool_use");
    const result = { type: "tool_result", tool_use_id: call.id, content: "sunny" };
    const messages = [...question.messages, { role: "assistant", content: first.content }, { role: "user", content: [result] }];
    assert.ok((await client.messages.create({ ...question, messages })).content[0].text);
  },
  async count() {
    const { model, messages, thinking } = base("Hello!");
    assert.ok((await client.messages.countTokens({ model, messages, thinking })).input_tokens > 5);
  },
  async badValue() {
    await assert.rejects(client.messages.create(base("Hello!", { temperature: -1 })), Anthropic.BadRequestError);
  },
  async abort() {
    const stream = client.messages.stream(base("Tell me a long story.", { max_tokens: 2000 }));
    for await (const _ of stream) { stream.abort(); break; }
    assert.ok((await client.messages.create(base("Hello!"))).content[0].text);
  },
});
