// The message field with its attached files.

import { readAttachment, sizeText } from "./attachment.js";
import { announce, byId, h, iconButton, notice } from "./dom.js";

let attachments = [];

// send(text, attachments) returns whether the message was taken; editLast() is for an arrow up in an empty field.
export function setUpComposer({ send, editLast }) {
  const input = byId("input");
  const submit = () => {
    const text = input.value.trim();
    if (text === "" && attachments.length === 0) return;
    if (!send(text, attachments)) return;
    input.value = "";
    fit(input);
    attachments = [];
    showAttachments();
  };
  byId("composer").onsubmit = (event) => {
    event.preventDefault();
    submit();
  };
  input.onkeydown = (event) => {
    // Enter that ends the choice of a word in an input method is not meant for us.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    } else if (event.key === "ArrowUp" && input.value === "" && editLast()) event.preventDefault();
  };
  input.oninput = () => fit(input);
  setUpFiles(input);
}

// Browsers that do not size fields by their text get a row for each line.
function fit(input) {
  if (!CSS.supports("field-sizing", "content")) input.rows = Math.min(12, input.value.split("\n").length);
}

function setUpFiles(input) {
  const picker = byId("attach-file");
  byId("attach").onclick = () => picker.click();
  picker.onchange = async () => {
    await attach([...picker.files]);
    picker.value = "";
    input.focus();
  };
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    attach([...event.dataTransfer.files]);
  });
  input.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach([...event.clipboardData.files]);
  });
}

async function attach(files) {
  for (const file of files) {
    try {
      attachments = [...attachments, await readAttachment(file, attachments.length)];
      announce(`Attached ${file.name}`);
    } catch (error) {
      notice(error.message, { isError: true });
    }
  }
  showAttachments();
}

function showAttachments() {
  const list = byId("attachments");
  list.hidden = attachments.length === 0;
  const entries = attachments.map((file) => {
    const remove = iconButton("close", `Remove ${file.name}`, () => {
      attachments = attachments.filter((other) => other !== file);
      showAttachments();
      byId("input").focus();
    });
    return h("li", { class: "chip" }, h("span", {}, file.name), h("small", {}, sizeText(file.text)), remove);
  });
  list.replaceChildren(...entries);
}

// While an answer comes, its button is in place of the other.
export function showBusy(isBusy) {
  const hadFocus = document.activeElement === byId("stop");
  byId("stop").hidden = !isBusy;
  byId("send").hidden = isBusy;
  if (hadFocus && !isBusy) byId("input").focus();
}
