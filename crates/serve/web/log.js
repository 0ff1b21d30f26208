// The messages on the page: their views, and whether the page follows the newest.

import { byId } from "./dom.js";
import { messageView } from "./message.js";

// Nearer to the end than this, the page follows.
const FOLLOW_PX = 80;

let views = new Map();
let follows = true;
let isUpdateDue = false;

export function setUpLog() {
  byId("scroller").addEventListener("scroll", () => {
    showWhetherAtEnd();
    follows = byId("to-end").hidden;
  });
  byId("to-end").onclick = followEnd;
  // The message field grows and shrinks.
  new ResizeObserver(keepAtEnd).observe(byId("scroller"));
}

// Shows these messages. Those that were there before keep their views, and what is open or rendered in them. `coming`
// is the answer that is not whole yet, if any; `describe(message)` gives what `refresh` of a view wants.
export function showMessages(messages, coming, describe) {
  views = new Map(messages.map((message) => [message.id, views.get(message.id) ?? messageView(message)]));
  for (const message of messages) {
    const view = views.get(message.id);
    view.update(message === coming).then(keepAtEnd);
    view.refresh(...describe(message));
  }
  place([...views.values()].map((view) => view.element));
  byId("welcome").hidden = messages.length > 0;
  keepAtEnd();
}

// Shows what has come of an answer, once a frame.
export function updateSoon(message, isStillComing) {
  if (isUpdateDue) return;
  isUpdateDue = true;
  requestAnimationFrame(() => {
    isUpdateDue = false;
    if (isStillComing()) views.get(message.id)?.update(true).then(keepAtEnd);
  });
}

export const beginEdit = (message) => views.get(message.id).edit();

export function followEnd() {
  follows = true;
  keepAtEnd();
}

// Those that are in their place are not touched, so that they keep the focus.
function place(elements) {
  const log = byId("log");
  elements.forEach((element, i) => {
    if (log.children[i] !== element) log.insertBefore(element, log.children[i] ?? null);
  });
  while (log.childElementCount > elements.length) log.lastElementChild.remove();
}

function keepAtEnd() {
  const scroller = byId("scroller");
  if (follows) scroller.scrollTop = scroller.scrollHeight;
  showWhetherAtEnd();
}

function showWhetherAtEnd() {
  const { scrollHeight, scrollTop, clientHeight } = byId("scroller");
  byId("to-end").hidden = scrollHeight - scrollTop - clientHeight < FOLLOW_PX;
}
