// Puts the page together: what each button and key does.

import { listModels, setKey } from "./api.js";
import * as chat from "./chat.js";
import { setUpComposer } from "./composer.js";
import { newConversation } from "./conversation.js";
import { askKey, askText, confirmThat } from "./dialog.js";
import { byId, h, icon, notice, saveFile } from "./dom.js";
import { setUpLog } from "./log.js";
import { openSettings, setUpSettings } from "./settings.js";
import { closeIfOver, setUpSidebar, showList, toggleSidebar } from "./sidebar.js";
import { erase, loadAll, loadSettings, openStore, readFile, save, saveSettings, toFile } from "./store.js";

let all = [];
let settings = loadSettings();

// A conversation was changed: it is now the newest of the list.
function changed(conversation) {
  if (Object.keys(conversation.messages).length === 0 && !all.includes(conversation)) return;
  all = [conversation, ...all.filter((other) => other !== conversation)].sort((a, b) => b.updated_ms - a.updated_ms);
  drawList();
}

function drawList() {
  showList(all, chat.currentConversation().id, { open: openById, rename, erase: eraseConversation, save: exportOne });
}

function openById(id) {
  chat.openConversation(all.find((conversation) => conversation.id === id));
  drawList();
  closeIfOver();
}

function newChat() {
  chat.openConversation(newConversation(settings.system));
  drawList();
  closeIfOver();
  byId("input").focus();
}

async function rename(conversation) {
  const title = await askText("Rename the conversation", "Title", conversation.title);
  if (!title) return;
  conversation.title = title;
  chat.keep(conversation);
  if (conversation === chat.currentConversation()) byId("title").textContent = title;
}

async function eraseConversation(conversation) {
  const what = `“${conversation.title || "Untitled"}” is deleted from this browser.`;
  if (!(await confirmThat("Delete the conversation?", what, "Delete"))) return;
  if (chat.isComing(conversation)) {
    notice("An answer is still coming in this conversation. Stop it first.");
    return;
  }
  await erase(conversation.id);
  all = all.filter((other) => other !== conversation);
  if (conversation === chat.currentConversation()) newChat();
  else drawList();
}

const exportOne = (conversation) => saveFile(`${fileName(conversation.title)}.json`, toFile([conversation]));

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";

async function importFile() {
  const [file] = byId("import-file").files;
  if (!file) return;
  try {
    const read = await readFile(file);
    for (const conversation of read) await save(conversation);
    all = await loadAll();
    drawList();
    notice(read.length === 1 ? "Imported one conversation." : `Imported ${read.length} conversations.`);
  } catch (error) {
    notice(error.message, { isError: true });
  }
  byId("import-file").value = "";
}

function showSettings() {
  openSettings({ ...settings, system: chat.currentConversation().system }, (chosen) => {
    settings = chosen;
    saveSettings(settings);
    const conversation = chat.currentConversation();
    conversation.system = settings.system;
    if (all.includes(conversation)) chat.keep(conversation);
  });
}

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const label = `Colours: ${THEMES[theme]}`;
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
  byId("theme").replaceChildren(icon(theme));
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const now = names.indexOf(document.documentElement.dataset.theme ?? "auto");
  const next = names[(now + 1) % names.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  localStorage.setItem("flash-moe.theme", next);
  showTheme();
}

// The server may have been away when the page was opened.
async function model() {
  if (byId("model").value === "") await showModels();
  return byId("model").value;
}

async function showModels() {
  const select = byId("model");
  try {
    const names = await listModels();
    select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    select.disabled = names.length < 2;
    select.title = select.value;
  } catch (error) {
    if (error.status === 401) {
      const key = await askKey(error.message);
      if (key !== null) {
        setKey(key);
        return showModels();
      }
    }
    notice(error.message, { isError: true });
  }
}

const isTyping = (element) => element.matches("input, textarea, select") || element.isContentEditable;

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (closeIfOver()) return;
    chat.stop();
    return;
  }
  const actions = { KeyN: newChat, KeyL: toggleSidebar, KeyS: showSettings, KeyR: chat.answerAgain };
  if (event.altKey && !event.ctrlKey && !event.metaKey && actions[event.code]) {
    event.preventDefault();
    actions[event.code]();
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(event.target)) {
    if (event.key === "/") {
      event.preventDefault();
      byId("input").focus();
    } else if (event.key === "?") byId("shortcuts").showModal();
  }
}

async function start() {
  setUpSettings();
  setUpSidebar();
  setUpLog();
  chat.setUpChat({ changed, model, settings: () => settings });
  setUpComposer({ send: chat.send, editLast: chat.editLast });
  showTheme();
  byId("theme").onclick = nextTheme;
  byId("new-chat").onclick = newChat;
  byId("stop").onclick = chat.stop;
  byId("open-settings").onclick = showSettings;
  byId("open-shortcuts").onclick = () => byId("shortcuts").showModal();
  byId("import").onclick = () => byId("import-file").click();
  byId("import-file").onchange = importFile;
  byId("export").onclick = () => saveFile("flash-moe-conversations.json", toFile(all));
  document.addEventListener("keydown", onKey);
  if (!(await openStore())) notice("This browser keeps no data: conversations last until the page is closed.");
  all = await loadAll();
  newChat();
  showModels();
}

start();
