// Questions to the user, each answered by a promise. The browser keeps the focus inside and gives it back.

import { byId } from "./dom.js";

export const confirmThat = async (title, text, action) => (await ask({ title, text, action, isDanger: true })) !== null;

// The text, or null if the user cancelled.
export const askText = (title, label, value) => ask({ title, label, value, action: "Save" });

export const askKey = (text) =>
  ask({ title: "API key", text, label: "Key of this server", value: "", action: "Continue", isSecret: true });

function ask({ title, text = "", label = null, value = "", action, isSecret = false, isDanger = false }) {
  const dialog = byId("ask");
  if (dialog.open) return Promise.resolve(null);
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  byId("ask-text").hidden = text === "";
  byId("ask-field").hidden = label === null;
  byId("ask-label").textContent = label ?? "";
  byId("ask-ok").textContent = action;
  byId("ask-ok").classList.toggle("danger", isDanger);
  const input = byId("ask-input");
  input.type = isSecret ? "password" : "text";
  input.value = value;
  dialog.returnValue = "";
  dialog.showModal();
  (label === null ? byId("ask-ok") : input).focus();
  input.select();
  return new Promise((resolve) => {
    const isOk = () => dialog.returnValue === "ok";
    const closed = () => {
      const answer = isOk() ? input.value.trim() : null;
      input.value = ""; // A key does not stay in the page.
      resolve(answer);
    };
    dialog.addEventListener("close", closed, { once: true });
    byId("ask-cancel").onclick = () => dialog.close();
  });
}
