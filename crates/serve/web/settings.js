// The dialog of settings, and what they mean in a request.

import { byId, h } from "./dom.js";

// Field of the API, label, smallest, largest, step.
const SAMPLING = [
  ["temperature", "Temperature", 0, 2, 0.05],
  ["top_p", "Top p", 0, 1, 0.01],
  ["top_k", "Top k", 0, 1000, 1],
  ["min_p", "Min p", 0, 1, 0.01],
  ["presence_penalty", "Presence penalty", -2, 2, 0.1],
  ["repetition_penalty", "Repetition penalty", 0.01, 10, 0.05],
  ["seed", "Seed", 0, Number.MAX_SAFE_INTEGER, 1],
  ["max_tokens", "Longest answer in tokens", 1, 1_000_000, 1],
];
const TEXTS = ["system", "thinking", "thinking_budget", "tools", ...SAMPLING.map(([name]) => name)];

// The fields of a request. All settings are texts, empty for the model's own choice.
export function requestFields(settings) {
  const fields = {};
  for (const [name] of SAMPLING) if (settings[name]) fields[name] = Number(settings[name]);
  if (settings.thinking_budget) fields.thinking_budget = Number(settings.thinking_budget);
  if (settings.thinking) fields.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  const tools = parseTools(settings.tools ?? "");
  if (tools.length > 0) fields.tools = tools;
  return fields;
}

// Throws a sentence for the user.
export function parseTools(text) {
  if (text.trim() === "") return [];
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`Not JSON: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new Error("The tools must be a JSON array.");
  tools.forEach((tool, i) => {
    if (tool?.type !== "function" || typeof tool.function?.name !== "string" || tool.function.name === "") {
      throw new Error(`Tool ${i + 1} must look like {"type": "function", "function": {"name": "…"}}.`);
    }
  });
  return tools;
}

export function setUpSettings() {
  const fields = SAMPLING.map(([name, label, min, max, step]) => {
    const input = h("input", { name, type: "number", min, max, step, placeholder: "Default", inputmode: "decimal" });
    // Values between the steps are right too.
    input.dataset.step = step;
    if (step < 1) input.step = "any";
    return h("label", { class: "field" }, label, input);
  });
  byId("sampling").append(...fields);
  byId("cancel-settings").onclick = () => byId("settings").close();
  byId("reset-settings").onclick = () => fill({});
}

// Shows the dialog; `save(settings)` gets what the user chose.
export function openSettings(settings, save) {
  const dialog = byId("settings");
  const form = byId("settings-form");
  fill(settings);
  form.onsubmit = (event) => {
    if (!isValid(form)) {
      event.preventDefault();
      return;
    }
    save(Object.fromEntries(TEXTS.map((name) => [name, form.elements[name].value])));
  };
  dialog.showModal();
}

function fill(settings) {
  for (const name of TEXTS) byId("settings-form").elements[name].value = settings[name] ?? "";
  byId("tools-error").textContent = "";
}

function isValid(form) {
  const tools = form.elements.tools;
  try {
    parseTools(tools.value);
    byId("tools-error").textContent = "";
    tools.removeAttribute("aria-invalid");
  } catch (error) {
    byId("tools-error").textContent = error.message;
    tools.setAttribute("aria-invalid", "true");
    tools.focus();
    return false;
  }
  return form.reportValidity();
}
