// Shows markdown that the server turned into clean HTML. While a text still comes, only its last block is rendered
// again: those before it are settled. If that fails, the text is shown as it is.

import { renderMarkdown } from "./api.js";
import { copyButton, h } from "./dom.js";

// Between renders at least this long, and three times what the last one took: the cores are for the model.
const PAUSE_MS = 80;
const TEXT_MAX = 250_000;

// The only HTML that this page makes, and it comes from the server's sanitiser.
const policy = globalThis.trustedTypes?.createPolicy("rendered", { createHTML: (html) => html });

// update(text) while it comes, finish(text) when it is whole.
export function markdownView(container) {
  const tail = h("div", { class: "tail" });
  container.replaceChildren(tail);
  const state = { text: "", shown: "", settled: 0, html: "", tailHtml: "", isFinished: false, whole: "" };
  let running = null;

  // One request at a time, so that none can overtake another.
  async function run() {
    while (state.isFinished || state.shown !== state.text) {
      const started = performance.now();
      const hasBegun = state.html + state.tailHtml !== "";
      if (!state.isFinished || (hasBegun && state.shown !== state.text)) await renderTail(container, tail, state);
      if (state.isFinished) await renderWhole(container, state);
      else await pause(Math.max(PAUSE_MS, 3 * (performance.now() - started)));
    }
  }

  function start() {
    running ??= run().finally(() => (running = null));
    return running;
  }

  return {
    async update(text) {
      state.text = text;
      state.isFinished = false;
      await start();
    },
    async finish(text) {
      if (text === state.whole && running === null) return;
      state.text = text;
      state.isFinished = true;
      await start();
    },
  };
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function renderTail(container, tail, state) {
  const text = state.text;
  const rest = text.slice(state.settled);
  // The start of an answer, or of one that is continued after it was whole.
  if (state.settled === 0) container.replaceChildren(tail);
  try {
    const { html, tail_html, tail_start } = await renderMarkdown(rest, true);
    tail.before(...nodesOf(html));
    tail.replaceChildren(...nodesOf(tail_html));
    state.html += html;
    state.tailHtml = tail_html;
    state.settled += tail_start;
  } catch {
    tail.replaceChildren(plain(rest));
    state.tailHtml = null;
  }
  state.shown = text;
}

// Links may be defined at the end of a text and used at its start, so that the whole is rendered once more; the page
// changes only if that made a difference.
async function renderWhole(container, state) {
  const { text, html: settledHtml, tailHtml, settled } = state;
  Object.assign(state, { isFinished: false, shown: text, whole: text, settled: 0, html: "", tailHtml: "" });
  try {
    if (text.length > TEXT_MAX) throw new Error("too long");
    const { html } = await renderMarkdown(text, false);
    if (html !== settledHtml + tailHtml) container.replaceChildren(...nodesOf(html));
  } catch {
    // What was rendered on the way is better than nothing; else the text itself.
    if (settled === 0 || tailHtml === null) container.replaceChildren(plain(text));
  }
}

const plain = (text) => h("p", { class: "plain" }, text);

function nodesOf(html) {
  const template = document.createElement("template");
  template.innerHTML = policy ? policy.createHTML(html) : html;
  for (const code of template.content.querySelectorAll(".code")) {
    const pre = code.querySelector("pre");
    const language = code.querySelector(".code-head span").textContent;
    pre.tabIndex = 0;
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", `Code, ${language}`);
    code.querySelector(".code-head").append(copyButton("Copy this code", () => pre.textContent));
  }
  for (const table of template.content.querySelectorAll(".table")) {
    table.tabIndex = 0;
    table.setAttribute("role", "region");
    table.setAttribute("aria-label", "Table");
  }
  return [...template.content.childNodes];
}
