// Conversations in this browser (IndexedDB), settings in its local storage. Without IndexedDB, as in some private
// windows, conversations last until the page is closed.

import { fromFile } from "./conversation.js";

const SETTINGS = "flash-moe.settings";
const FILE_BYTES_MAX = 64 << 20;
const FORMAT = "flash-moe-conversations-1";

let database = null;
const inMemory = new Map();

// Resolves to false if nothing can be kept.
export async function openStore() {
  try {
    const request = indexedDB.open("flash-moe", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
    database = await settled(request);
    return true;
  } catch {
    return false;
  }
}

// Newest first.
export async function loadAll() {
  const all = database ? await settled(conversations("readonly").getAll()) : [...inMemory.values()];
  return all.sort((a, b) => b.updated_ms - a.updated_ms);
}

// Throws if the browser has no more room.
export async function save(conversation) {
  if (!database) return void inMemory.set(conversation.id, conversation);
  try {
    const store = conversations("readwrite");
    store.put(conversation);
    await committed(store.transaction);
  } catch (error) {
    if (error?.name !== "QuotaExceededError") throw error;
    throw new Error("The browser has no room left for conversations. Export and delete some.");
  }
}

export async function erase(id) {
  if (!database) return void inMemory.delete(id);
  const store = conversations("readwrite");
  store.delete(id);
  await committed(store.transaction);
}

export const toFile = (all) => JSON.stringify({ format: FORMAT, conversations: all }, null, 1);

// Conversations of an exported file. They become new ones, so that none is overwritten.
export async function readFile(file) {
  if (file.size > FILE_BYTES_MAX) throw new Error(`${file.name} is larger than ${FILE_BYTES_MAX >> 20} MB`);
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error(`${file.name} is not JSON`);
  }
  if (value?.format !== FORMAT || !Array.isArray(value.conversations)) {
    throw new Error(`${file.name} was not exported from this page`);
  }
  try {
    return value.conversations.map(fromFile);
  } catch (error) {
    throw new Error(`${file.name} is damaged: ${error.message}`);
  }
}

export function loadSettings() {
  try {
    return JSON.parse(localStorage.getItem(SETTINGS)) ?? {};
  } catch {
    return {};
  }
}

export function saveSettings(settings) {
  localStorage.setItem(SETTINGS, JSON.stringify(settings));
}

const conversations = (mode) => database.transaction("conversations", mode).objectStore("conversations");

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("another tab holds an old version"));
  });
}

function committed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
}
