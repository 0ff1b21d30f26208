// The conversation that is shown, and the answer that comes. One answer comes at a time; it goes on while another
// conversation is looked at.

import { applyChunk } from "./answer.js";
import { ApiError, setKey, streamChat } from "./api.js";
import { showBusy } from "./composer.js";
import * as tree from "./conversation.js";
import { askKey, confirmThat } from "./dialog.js";
import { announce, byId, notice } from "./dom.js";
import { beginEdit, followEnd, showMessages, updateSoon } from "./log.js";
import { requestFields } from "./settings.js";
import { showFigures, showProgress, showWaiting } from "./status.js";
import { save } from "./store.js";

const RETRIES_MAX = 5;
const RETRY_S_MAX = 120;
const SAVE_AFTER_MS = 1000;

let host = null;
let current = tree.newConversation();
let coming = null; // { conversation, message, abort }
let saveTimer = null;

// changed(conversation) is called when the list has to be shown anew; model() resolves to its name; settings() gives
// the current ones.
export function setUpChat({ changed, model, settings }) {
  host = { changed, model, settings };
}

export const currentConversation = () => current;
export const isComing = (conversation) => coming?.conversation === conversation;
export const stop = () => coming?.abort.abort();

export function openConversation(conversation) {
  current = conversation;
  draw();
  followEnd();
  const answers = tree.branch(current).filter((message) => message.timings);
  showFigures(answers.at(-1)?.timings ?? null);
}

// Returns whether the message was taken.
export function send(content, attachments) {
  if (!isFree()) return false;
  tree.append(current, current.head, { role: "user", content, attachments });
  answerTo(current.head);
  followEnd();
  return true;
}

export function answerAgain() {
  const last = tree.branch(current).findLast((message) => message.role === "assistant");
  if (last) answerTo(last.parent);
}

// Opens the last message of the user for editing; false if there is none.
export function editLast() {
  const last = tree.branch(current).findLast((message) => message.role === "user");
  if (!last || coming) return false;
  beginEdit(last);
  return true;
}

export function keep(conversation) {
  host.changed(conversation);
  save(conversation).catch((error) => notice(error.message, { isError: true }));
}

function draw() {
  const messages = tree.branch(current);
  const results = new Map(messages.filter((m) => m.role === "tool").map((m) => [m.tool_call_id, m.content]));
  const describe = (message) => {
    const versions = tree.versions(current, message);
    return [{ versions: versions.length, at: versions.indexOf(message), results }, actionsOf(message, versions)];
  };
  showMessages(messages.filter((message) => message.role !== "tool"), coming?.message, describe);
  const title = current.title || "New chat";
  byId("title").textContent = title;
  document.title = `${title} – Flash-MoE`;
  showBusy(coming !== null);
}

// While an answer comes, nothing else in its conversation can be changed.
function actionsOf(message, versions) {
  if (isComing(current)) return {};
  const showVersion = (at) => {
    tree.show(current, versions[at].id);
    keep(current);
    draw();
  };
  const erase = () => eraseMessage(message);
  if (message.role === "user") return { showVersion, erase, edit: (text) => editMessage(message, text) };
  const isLast = current.head === message.id;
  const canGoOn = isLast && message.content !== "" && message.tool_calls.length === 0;
  return {
    showVersion,
    erase,
    again: () => answerTo(message.parent),
    goOn: canGoOn ? () => isFree() && run(message) : null,
    sendResults: isLast && tree.openCalls(current).length > 0 ? sendResults : null,
  };
}

async function eraseMessage(message) {
  const what = "The message and all that follows it are deleted.";
  if (!(await confirmThat("Delete this message?", what, "Delete"))) return;
  tree.remove(current, message.id);
  keep(current);
  draw();
  byId("input").focus();
}

function editMessage(message, content) {
  if (!isFree()) return;
  tree.append(current, message.parent, { role: "user", content, attachments: message.attachments });
  answerTo(current.head);
}

function sendResults(results) {
  if (!isFree()) return;
  for (const result of results) tree.append(current, current.head, { role: "tool", ...result });
  answerTo(current.head);
}

function answerTo(parent) {
  if (!isFree()) return;
  run(tree.newAnswer(current, parent));
  byId("input").focus();
}

function isFree() {
  if (coming === null) return true;
  notice("An answer is still coming. Stop it first.");
  return false;
}

// Asks for an answer, or for the rest of one that has a beginning.
async function run(message) {
  const conversation = current;
  const abort = new AbortController();
  message.error = null;
  message.finish = null;
  coming = { conversation, message, abort };
  draw();
  keep(conversation);
  announce("Waiting for the answer");
  try {
    const body = await requestBody(conversation);
    await withRetries(abort.signal, () => receive(conversation, message, body, abort.signal));
    announce(message.tool_calls.length > 0 ? "The model calls a tool" : "The answer is complete");
  } catch (error) {
    if (abort.signal.aborted) message.finish = "stopped";
    else message.error = error.message;
    announce(abort.signal.aborted ? "Stopped" : `Error: ${error.message}`);
  }
  finish(conversation, message);
}

async function requestBody(conversation) {
  return {
    model: await host.model(),
    messages: tree.toApi(conversation),
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    timings_per_token: true,
    ...requestFields(host.settings()),
  };
}

async function receive(conversation, message, body, signal) {
  const clock = { reasoning_since: null };
  showWaiting("Waiting for the server");
  for await (const chunk of streamChat(body, signal)) {
    const { progress, timings } = applyChunk(message, chunk, performance.now(), clock);
    const isReading = progress !== null && progress.processed < progress.total;
    showProgress(isReading ? progress : null);
    if (timings) showFigures(timings);
    updateSoon(message, () => coming?.message === message);
    keepSoon(conversation);
  }
}

function finish(conversation, message) {
  coming = null;
  clearTimeout(saveTimer);
  saveTimer = null;
  giveIds(message);
  showWaiting(null);
  tree.touch(conversation);
  keep(conversation);
  if (conversation === current) draw();
  else notice(`The answer in “${conversation.title}” has ended.`);
  showBusy(false);
}

// A tab may be closed at any time.
function keepSoon(conversation) {
  saveTimer ??= setTimeout(() => {
    saveTimer = null;
    keep(conversation);
  }, SAVE_AFTER_MS);
}

// A busy server is asked again when it says so; one that wants a key gets what the user types.
async function withRetries(signal, attempt) {
  for (let n_retry = 0; ; n_retry++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof ApiError) || n_retry === RETRIES_MAX) throw error;
      if (error.status === 401) {
        const key = await askKey(error.message);
        if (key === null) throw error;
        setKey(key);
      } else if (error.status === 429) await countDown(error.retryAfterS ?? 5, signal);
      else throw error;
    }
  }
}

async function countDown(seconds, signal) {
  for (let left = Math.min(seconds, RETRY_S_MAX); left > 0; left--) {
    showWaiting(`The server is busy. Next try in ${left} s`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    signal.throwIfAborted();
  }
}

// Results are matched by id; a server that gives none, or the same twice, would mix them up.
function giveIds(message) {
  const seen = new Set();
  message.tool_calls.forEach((call, i) => {
    if (call.id === "" || seen.has(call.id)) call.id = `call_${message.id}_${i}`;
    seen.add(call.id);
  });
}
