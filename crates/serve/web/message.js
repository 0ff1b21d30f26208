// One message: its text, thinking, calls of tools, and buttons. An answer's view is updated while it comes.

import { indented } from "./answer.js";
import { sizeText } from "./attachment.js";
import { copyButton, h, icon, iconButton } from "./dom.js";
import { markdownView } from "./markdown.js";
import { duration, summary } from "./status.js";

// update(isComing) shows what the message says now, refresh(context, actions) what can be done with it.
// context: { versions, at, results }; actions: edit, again, goOn, erase, showVersion, sendResults, each with a button
// if it is given.
export function messageView(message) {
  return message.role === "user" ? userView(message) : answerView(message);
}

function userView(message) {
  const files = message.attachments.map((file) =>
    h(
      "details",
      { class: "file" },
      h("summary", {}, icon("file"), file.name, h("small", {}, sizeText(file.text))),
      h("pre", { tabindex: "0", "aria-label": file.name }, file.text),
    ),
  );
  const text = message.content ? h("p", { class: "plain" }, message.content) : null;
  const body = h("div", { class: "bubble" }, ...files, text);
  const foot = h("div", {});
  const element = article(message, "You", body, foot);
  let actions = {};
  const edit = () => actions.edit && editor(element, body, message, actions.edit);
  return {
    element,
    edit,
    async update() {},
    refresh(context, given) {
      actions = given;
      foot.replaceChildren(buttons(message, context, { ...actions, edit: actions.edit && edit }));
    },
  };
}

// The text in a field, in place of the message.
function editor(element, body, message, edited) {
  if (element.querySelector("textarea")) return;
  const input = h("textarea", { "aria-label": "Your message", value: message.content, rows: "3" });
  const close = () => {
    form.replaceWith(body);
    element.classList.remove("editing");
    element.querySelector('[aria-label="Edit"]')?.focus();
  };
  const save = () => {
    if (input.value.trim() === "" && message.attachments.length === 0) return;
    close();
    edited(input.value.trim());
  };
  const form = h(
    "form",
    { class: "editor" },
    input,
    h(
      "div",
      { class: "row" },
      h("button", { class: "button", type: "button", onclick: close }, "Cancel"),
      h("button", { class: "button primary", type: "submit" }, "Send"),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      save();
    }
  });
  element.classList.add("editing");
  body.replaceWith(form);
  input.focus();
}

function answerView(message) {
  const thinking = thinkingView();
  const content = h("div", { class: "content" });
  const calls = h("div", { class: "calls" });
  const problem = h("div", { class: "problem", hidden: true });
  const foot = h("div", {});
  const element = article(message, "Assistant", thinking.element, content, calls, problem, foot);
  const markdown = markdownView(content);
  const cards = [];
  return {
    element,
    async update(isComing) {
      element.setAttribute("aria-busy", "true");
      thinking.update(message, isComing);
      message.tool_calls.forEach((call, i) => {
        cards[i] ??= callCard(calls);
        cards[i].update(call);
      });
      element.classList.toggle("coming", isComing && message.content === "" && cards.length === 0);
      problem.hidden = isComing || (message.error === null && message.finish !== "length");
      problem.textContent = message.error ?? "The answer reached the longest length that was allowed.";
      problem.classList.toggle("mild", message.error === null);
      if (isComing) return markdown.update(message.content);
      await markdown.finish(message.content);
      element.removeAttribute("aria-busy");
    },
    refresh(context, actions) {
      const figures = h("p", { class: "summary" }, summary(message.timings));
      foot.replaceChildren(buttons(message, context, actions), figures);
      showResults(message, cards, context.results, actions.sendResults);
    },
  };
}

function thinkingView() {
  const title = document.createTextNode("");
  const text = document.createTextNode("");
  const element = h(
    "details",
    { class: "thinking", hidden: true },
    h("summary", {}, title),
    h("div", { class: "thinking-text plain" }, text),
  );
  return {
    element,
    update(message, isComing) {
      element.hidden = message.reasoning === "";
      const isThinking = isComing && message.content === "" && message.tool_calls.length === 0;
      const time = duration(message.reasoning_ms / 1000);
      title.data = isThinking ? `Thinking, ${time}` : `Thought for ${time}`;
      if (message.reasoning.length !== text.length) text.appendData(message.reasoning.slice(text.length));
    },
  };
}

// A call with its arguments, and room for its result.
function callCard(parent) {
  const name = h("code", {});
  const pre = h("pre", { tabindex: "0" });
  const result = h("div", { class: "result" });
  const head = h("div", { class: "call-head" }, icon("tool"), "Call of ", name);
  const element = h("section", { class: "call" }, head, pre, result);
  parent.append(element);
  let shown = -1;
  return {
    result,
    update(call) {
      name.textContent = call.name;
      element.setAttribute("aria-label", `Call of ${call.name}`);
      pre.setAttribute("aria-label", `Arguments of ${call.name}`);
      if (call.arguments.length === shown) return;
      shown = call.arguments.length;
      pre.textContent = indented(call.arguments);
    },
  };
}

// Results that are there are shown; for the others there are fields, sent together.
function showResults(message, cards, results, sendResults) {
  const fields = [];
  message.tool_calls.forEach((call, i) => {
    const known = results.get(call.id);
    const { result } = cards[i];
    result.replaceChildren();
    if (known !== undefined) {
      const text = h("pre", { tabindex: "0", "aria-label": `Result of ${call.name}` }, known);
      result.append(h("details", {}, h("summary", {}, "Result"), text));
    } else if (sendResults) {
      const input = h("textarea", { rows: "2", placeholder: "Text or JSON" });
      fields.push({ call, input });
      result.append(h("label", { class: "field" }, `Result of ${call.name}`, input));
    }
  });
  if (fields.length === 0) return;
  const send = () => sendResults(fields.map(({ call, input }) => ({ tool_call_id: call.id, content: input.value })));
  const label = fields.length === 1 ? "Send the result" : "Send the results";
  cards.at(-1).result.append(h("button", { class: "button primary", type: "button", onclick: send }, label));
}

function article(message, who, ...children) {
  const attributes = { class: "message", "data-role": message.role, "data-id": message.id, "aria-label": who };
  return h("article", attributes, h("div", { class: "who", "aria-hidden": "true" }, who), ...children);
}

function buttons(message, context, actions) {
  const bar = h("div", { class: "buttons", role: "group", "aria-label": "Actions" });
  if (context.versions > 1) bar.append(versionSwitch(context, actions));
  if (message.content) bar.append(copyButton("Copy", () => message.content));
  if (actions.edit) bar.append(iconButton("edit", "Edit", actions.edit));
  if (actions.again) bar.append(iconButton("again", "Answer again", actions.again));
  if (actions.goOn) bar.append(iconButton("continue", "Continue", actions.goOn));
  if (actions.erase) bar.append(iconButton("delete", "Delete", actions.erase));
  return bar;
}

function versionSwitch({ versions, at }, { showVersion }) {
  const back = iconButton("previous", "Earlier version", () => showVersion(at - 1));
  const on = iconButton("next", "Later version", () => showVersion(at + 1));
  back.disabled = at === 0;
  on.disabled = at === versions - 1;
  const label = h("span", { class: "version" }, `${at + 1}/${versions}`);
  label.setAttribute("aria-label", `Version ${at + 1} of ${versions}`);
  label.setAttribute("role", "img");
  return h("span", { class: "versions" }, back, label, on);
}
