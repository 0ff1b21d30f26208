// The list of conversations, and whether it is shown.

import { byId, h, iconButton } from "./dom.js";

const narrow = matchMedia("(max-width: 760px)");

// actions: open(id), rename(conversation), erase(conversation), save(conversation)
export function showList(all, currentId, actions) {
  byId("no-conversations").hidden = all.length > 0;
  byId("export").disabled = all.length === 0;
  byId("conversations").replaceChildren(...all.map((conversation) => entry(conversation, currentId, actions)));
}

function entry(conversation, currentId, actions) {
  const title = conversation.title || "Untitled";
  const isCurrent = conversation.id === currentId;
  const open = h(
    "button",
    {
      class: "conversation",
      type: "button",
      title,
      "aria-current": isCurrent ? "page" : null,
      onclick: () => actions.open(conversation.id),
    },
    title,
  );
  const buttons = h(
    "span",
    { class: "conversation-buttons" },
    iconButton("edit", `Rename “${title}”`, () => actions.rename(conversation)),
    iconButton("export", `Export “${title}”`, () => actions.save(conversation)),
    iconButton("delete", `Delete “${title}”`, () => actions.erase(conversation)),
  );
  return h("li", isCurrent ? { class: "current" } : {}, open, buttons);
}

export function setUpSidebar() {
  setOpen(!narrow.matches);
  narrow.addEventListener("change", () => setOpen(!narrow.matches));
  byId("toggle-sidebar").onclick = toggleSidebar;
  byId("scrim").onclick = () => setOpen(false);
}

export function toggleSidebar() {
  setOpen(!isOpen());
  if (isOpen()) (document.querySelector(".conversation[aria-current]") ?? byId("new-chat")).focus();
}

// On a phone the list covers the page. Returns whether there was something to close.
export function closeIfOver() {
  if (!narrow.matches || !isOpen()) return false;
  setOpen(false);
  byId("toggle-sidebar").focus();
  return true;
}

const isOpen = () => document.body.classList.contains("with-sidebar");

function setOpen(open) {
  document.body.classList.toggle("with-sidebar", open);
  byId("sidebar").inert = !open;
  byId("page").inert = open && narrow.matches;
  byId("toggle-sidebar").setAttribute("aria-expanded", String(open));
}
