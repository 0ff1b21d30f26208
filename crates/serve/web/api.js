// The server's API: requests, its errors, and streams of events. Knows nothing of the page.

const KEY = "flash-moe.api-key";

// What the server said, or that it could not be reached.
export class ApiError extends Error {
  constructor(message, { status = 0, retryAfterS = null } = {}) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

// Kept until the tab is closed.
export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

export async function listModels() {
  const response = await send("/v1/models", { method: "GET" });
  const { data } = await response.json();
  return data.map((model) => model.id);
}

// { html, tail_html, tail_start }
export async function renderMarkdown(markdown, open) {
  const response = await post("/web/render", { markdown, open }, AbortSignal.timeout(10_000));
  return response.json();
}

// Yields the chunks of a streamed answer.
export async function* streamChat(body, signal) {
  const response = await post("/v1/chat/completions", body, signal);
  let isDone = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      isDone = true;
      break;
    }
    const chunk = parse(data);
    if (chunk.error) throw new ApiError(errorText(chunk) ?? "the server reported an error");
    yield chunk;
  }
  if (!isDone) throw new ApiError("The connection ended before the answer did.");
}

const post = (path, body, signal) =>
  send(path, { method: "POST", body: JSON.stringify(body), signal, headers: { "Content-Type": "application/json" } });

async function send(path, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError("The server cannot be reached. Is it running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const retryAfterS = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  throw new ApiError(errorText(body) ?? `The server answered with status ${response.status}.`, {
    status: response.status,
    retryAfterS: Number.isNaN(retryAfterS) ? null : retryAfterS,
  });
}

const errorText = (body) => (typeof body?.error?.message === "string" ? body.error.message : null);

function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError("The server sent something that is not JSON.");
  }
}

// The data of each server-sent event. Comments, which keep the connection alive, are skipped.
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const ended of lines) {
        const line = ended.endsWith("\r") ? ended.slice(0, -1) : ended;
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        else if (line === "" && data.length > 0) {
          yield data.join("\n");
          data = [];
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
