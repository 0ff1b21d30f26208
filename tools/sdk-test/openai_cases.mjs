// The OpenAI SDK for Node against a server with the demo model. Usage: openai_cases.mjs URL
import assert from "node:assert/strict";
import OpenAI from "openai";
import { run } from "./harness.mjs";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const weather = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { type: "function", function: { name: "get_weather", description: "Current weather in a city", parameters: weather } };
const ask = (content, options = {}) => client.chat.completions.create({
  model, messages: [{ role: "user", content }], temperature: 0, max_tokens: 200,
  chat_template_kwargs: { enable_thinking: false }, ...options,
});

await run("openai (Node)", {
  async answer() {
    const { choices: [choice], usage } = await ask("Hello!");
    assert.ok(choice.message.content);
    assert.equal(choice.finish_reason, "stop");
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  },
  async stream() {
    const whole = (await ask("Hello!")).choices[0].message.content;
    let text = "", usage = null;
    for await (const chunk of await ask("Hello!", { stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole);
    assert.ok(usage.completion_tokens > 0);
  },
  async calls() {
    const { message } = (await ask("What's the weather in Rome and Oslo?", { tools: [tool] })).choices[0];
    assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments).city), ["Rome", "Oslo"]);
  },
  async streamedCalls() {
    const runner = client.chat.completions.stream({
      model, messages: [{ role: "user", content: "What's the weather in Rome and Oslo?" }], tools: [tool], temperature: 0,
      chat_template_kwargs: { enable_thinking: false },
    });
    const { message, finish_reason } = (await runner.finalChatCompletion()).choices[0];
    assert.equal(finish_reason, "tool_calls");
    assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments).city), ["Rome", "Oslo"]);
  },
  async toolLoop() {
    const runner = client.chat.completions.runTools({
      model, messages: [{ role: "user", content: "What's the weather in Rome?" }], temperature: 0,
      chat_template_kwargs: { enable_thinking: false },
      tools: [{ type: "function", function: { ...tool.function, parse: JSON.parse, function: ({ city }) => `sunny in ${city}` } }],
    });
    assert.ok(await runner.finalContent());
  },
  async schema() {
    const schema = { type: "object", properties: { x: { type: "integer" } }, required: ["x"], additionalProperties: false };
    const answer = await ask("A number.", { response_format: { type: "json_schema", json_schema: { name: "n", schema, strict: true } } });
    assert.ok(Number.isInteger(JSON.parse(answer.choices[0].message.content).x));
  },
  async badValue() {
    await assert.rejects(ask("Hello!", { temperature: -1 }), OpenAI.BadRequestError);
  },
  async abort() {
    const stream = await ask("Tell me a long story.", { stream: true, max_tokens: 2000 });
    for await (const _ of stream) { stream.controller.abort(); break; }
    assert.ok((await ask("Hello!")).choices[0].message.content);
  },
  async response() {
    const response = await client.responses.create({ model, input: "Hello!", reasoning: { effort: "none" }, temperature: 0 });
    assert.ok(response.output_text);
    let last;
    for await (const event of await client.responses.create({ model, input: "Hello!", stream: true, reasoning: { effort: "none" } })) last = event.type;
    assert.equal(last, "response.completed");
  },
});
