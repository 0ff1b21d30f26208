// A conversation is a tree of messages: to edit or to answer again begins a branch, and `head` is the message at the
// end of the branch that is shown. No view, no storage, no network.
//
// message: { id, parent, role, content, created_ms } and
//   user:       attachments: [{ name, text }]
//   assistant:  reasoning, reasoning_ms, tool_calls: [{ id, name, arguments }], finish, error, timings
//   tool:       tool_call_id

const TITLE_CHARS_MAX = 60;
const ROLES = ["user", "assistant", "tool"];

export function newConversation(system = "") {
  const now = Date.now();
  return { id: newId(), title: "", system, head: null, messages: {}, created_ms: now, updated_ms: now };
}

// Adds a message behind `parent` and shows it.
export function append(conversation, parent, fields) {
  const message = { id: newId(), parent, content: "", created_ms: Date.now(), ...fields };
  conversation.messages[message.id] = message;
  conversation.head = message.id;
  if (!conversation.title && message.role === "user") conversation.title = titleOf(message);
  touch(conversation);
  return message;
}

export function newAnswer(conversation, parent) {
  const fields = { role: "assistant", reasoning: "", reasoning_ms: 0, tool_calls: [], finish: null, error: null };
  return append(conversation, parent, { ...fields, timings: null });
}

// The messages that are shown, oldest first.
export function branch(conversation) {
  const messages = [];
  for (let id = conversation.head; id !== null; id = conversation.messages[id].parent) {
    messages.push(conversation.messages[id]);
  }
  return messages.reverse();
}

// The message and the others that stand in its place in other branches, oldest first.
export function versions(conversation, message) {
  return childrenOf(conversation, message.parent).filter((other) => other.role === message.role);
}

// Shows the branch through a message, to its newest end.
export function show(conversation, id) {
  let children;
  do {
    conversation.head = id;
    children = childrenOf(conversation, id);
    id = children.at(-1)?.id;
  } while (children.length > 0);
}

// Removes a message and all that follows it.
export function remove(conversation, id) {
  const { parent } = conversation.messages[id];
  const doomed = [id];
  while (doomed.length > 0) {
    const next = doomed.pop();
    doomed.push(...childrenOf(conversation, next).map((child) => child.id));
    delete conversation.messages[next];
  }
  const sibling = childrenOf(conversation, parent).at(-1);
  if (sibling) show(conversation, sibling.id);
  else conversation.head = parent;
  touch(conversation);
}

export function touch(conversation) {
  conversation.updated_ms = Date.now();
}

// Calls at the end of the branch that have no result yet.
export function openCalls(conversation) {
  const messages = branch(conversation);
  const answered = new Set();
  while (messages.at(-1)?.role === "tool") answered.add(messages.pop().tool_call_id);
  const last = messages.at(-1);
  return last?.role === "assistant" ? wholeCalls(last).filter((call) => !answered.has(call.id)) : [];
}

// Calls of an answer that was cut may lack their end.
function wholeCalls(message) {
  return ["tool_calls", "stop"].includes(message.finish) ? message.tool_calls : [];
}

// The branch as the API wants it.
export function toApi(conversation) {
  const system = conversation.system.trim() ? [{ role: "system", content: conversation.system }] : [];
  return system.concat(branch(conversation).filter(hasText).map(messageToApi));
}

// An answer that failed before its first word is no part of the conversation.
const hasText = (message) =>
  message.role !== "assistant" || message.content !== "" || message.reasoning !== "" || wholeCalls(message).length > 0;

function messageToApi(message) {
  if (message.role === "user") return { role: "user", content: userText(message) };
  if (message.role === "tool") return { role: "tool", tool_call_id: message.tool_call_id, content: message.content };
  const api = { role: "assistant", content: message.content };
  if (message.reasoning) api.reasoning_content = message.reasoning;
  const calls = wholeCalls(message);
  if (calls.length > 0) api.tool_calls = calls.map(callToApi);
  return api;
}

const callToApi = (call) => ({
  id: call.id,
  type: "function",
  function: { name: call.name, arguments: call.arguments },
});

// Attached files first, each in a fence that is longer than those in the file.
function userText(message) {
  const files = message.attachments.map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File \`${name}\`:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...files, message.content].filter((part) => part !== "").join("\n\n");
}

// A conversation from a file, with nothing in it that the page does not expect. Throws what is wrong.
export function fromFile(value) {
  const conversation = newConversation(text(value, "system"));
  conversation.title = text(value, "title").slice(0, 200);
  conversation.created_ms = number(value, "created_ms");
  conversation.updated_ms = number(value, "updated_ms");
  if (!value.messages || typeof value.messages !== "object") throw new Error("a conversation has no messages");
  const given = Object.values(value.messages);
  const ids = new Map(given.map((message) => [text(message, "id"), newId()]));
  for (const message of given) {
    const read = messageFromFile(message);
    read.id = ids.get(message.id);
    read.parent = message.parent === null ? null : ids.get(message.parent);
    if (read.parent === undefined) throw new Error("a message follows one that is missing");
    conversation.messages[read.id] = read;
  }
  checkTree(conversation);
  if (value.head !== null && !ids.has(value.head)) throw new Error("the newest message is missing");
  conversation.head = value.head === null ? null : ids.get(value.head);
  return conversation;
}

function messageFromFile(value) {
  if (!ROLES.includes(value.role)) throw new Error(`a message has the unknown role "${value.role}"`);
  const message = { role: value.role, content: text(value, "content"), created_ms: number(value, "created_ms") };
  if (value.role === "tool") return { ...message, tool_call_id: text(value, "tool_call_id") };
  if (value.role === "user") {
    const read = (file) => ({ name: text(file, "name"), text: text(file, "text") });
    return { ...message, attachments: list(value, "attachments").map(read) };
  }
  const calls = list(value, "tool_calls");
  return {
    ...message,
    reasoning: text(value, "reasoning"),
    reasoning_ms: number(value, "reasoning_ms"),
    tool_calls: calls.map((c) => ({ id: text(c, "id"), name: text(c, "name"), arguments: text(c, "arguments") })),
    finish: typeof value.finish === "string" ? value.finish : null,
    error: typeof value.error === "string" ? value.error : null,
    timings: null,
  };
}

// Every message leads back to a first one.
function checkTree(conversation) {
  const reached = new Set();
  const waiting = childrenOf(conversation, null);
  while (waiting.length > 0) {
    const message = waiting.pop();
    reached.add(message.id);
    waiting.push(...childrenOf(conversation, message.id));
  }
  const n_message = Object.keys(conversation.messages).length;
  if (reached.size !== n_message) throw new Error("messages follow each other in a circle");
}

function text(value, name) {
  if (typeof value?.[name] !== "string") throw new Error(`"${name}" is not a text`);
  return value[name];
}

function number(value, name) {
  if (!Number.isFinite(value?.[name])) throw new Error(`"${name}" is not a number`);
  return value[name];
}

function list(value, name) {
  if (!Array.isArray(value?.[name])) throw new Error(`"${name}" is not a list`);
  return value[name];
}

function childrenOf(conversation, id) {
  const children = Object.values(conversation.messages).filter((message) => message.parent === id);
  return children.sort((a, b) => a.created_ms - b.created_ms);
}

function titleOf(message) {
  const words = message.content.trim() || message.attachments[0]?.name || "";
  const line = words.split("\n", 1)[0];
  return line.length > TITLE_CHARS_MAX ? `${line.slice(0, TITLE_CHARS_MAX)}…` : line;
}

// Not crypto.randomUUID: pages that are not secure lack it.
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
