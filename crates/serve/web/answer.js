// An answer as it comes: what each chunk of the stream adds to the message. No view, no network.

// Returns what the chunk said besides: { progress, timings }, each null if it did not.
export function applyChunk(message, chunk, now_ms, clock) {
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  if (delta.reasoning_content) {
    clock.reasoning_since ??= now_ms;
    message.reasoning += delta.reasoning_content;
    message.reasoning_ms = now_ms - clock.reasoning_since;
  }
  if (delta.content || delta.tool_calls) endReasoning(message, now_ms, clock);
  if (delta.content) message.content += delta.content;
  for (const fragment of delta.tool_calls ?? []) addFragment(message, fragment);
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (chunk.timings) message.timings = chunk.timings;
  return { progress: chunk.prompt_progress ?? null, timings: chunk.timings ?? null };
}

function endReasoning(message, now_ms, clock) {
  if (clock.reasoning_since === null) return;
  message.reasoning_ms = now_ms - clock.reasoning_since;
  clock.reasoning_since = null;
}

function addFragment(message, fragment) {
  const at = fragment.index ?? message.tool_calls.length;
  // Calls come in order; a gap would leave cards without a name.
  if (at > message.tool_calls.length) return;
  message.tool_calls[at] ??= { id: "", name: "", arguments: "" };
  const call = message.tool_calls[at];
  if (fragment.id) call.id = fragment.id;
  call.name += fragment.function?.name ?? "";
  call.arguments += fragment.function?.arguments ?? "";
}

// JSON with a line for each value, also while its end is still missing.
export function indented(json) {
  let out = "";
  let depth = 0;
  let inString = false;
  let isEscaped = false;
  const line = () => `\n${"  ".repeat(Math.min(depth, 40))}`;
  for (const c of json) {
    if (inString) {
      out += c;
      if (isEscaped) isEscaped = false;
      else if (c === "\\") isEscaped = true;
      else if (c === '"') inString = false;
    } else if (c === "{" || c === "[") {
      depth += 1;
      out += c + line();
    } else if (c === "}" || c === "]") {
      depth = Math.max(0, depth - 1);
      out = /[[{]\s*$/.test(out.slice(-90)) ? out.trimEnd() + c : out + line() + c;
    } else if (c === ",") out += c + line();
    else if (c === ":") out += ": ";
    else if (!/\s/.test(c)) {
      out += c;
      inString = c === '"';
    }
  }
  return out;
}

// Seconds that the rest of the prompt takes, if it goes on as before; null if that is not known.
export function secondsLeft({ total, cached = 0, processed, elapsed_ms }) {
  const done = processed - cached;
  if (!(done > 0) || !(elapsed_ms > 0)) return null;
  return ((total - processed) * elapsed_ms) / done / 1000;
}
