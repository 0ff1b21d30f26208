// Elements in one expression, and the few things that every view needs.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// h("button", { class: "a", onclick: f, disabled: true, "aria-label": "b" }, "text", child)
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `/web/icons.svg#${name}`);
  svg.append(use);
  return svg;
}

export function iconButton(name, label, onclick) {
  return h("button", { class: "icon-button", type: "button", "aria-label": label, title: label, onclick }, icon(name));
}

// Politely tells a screen reader what others see.
export function announce(text) {
  byId("announcer").textContent = text;
}

// Shows a message for a while; until it is closed if it is an error. Not twice at a time.
export function notice(text, { isError = false } = {}) {
  if ([...byId("notices").children].some((shown) => shown.textContent === text)) return;
  const attributes = isError ? { class: "notice error", role: "alert" } : { class: "notice" };
  const element = h("div", attributes, h("span", {}, text));
  element.append(iconButton("close", "Close this message", () => element.remove()));
  byId("notices").append(element);
  if (!isError) setTimeout(() => element.remove(), 6000);
}

// Browsers give the clipboard to secure pages only; others still have the old way.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { class: "sr-only", value: text });
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (!isDone) throw new Error("the browser does not allow it");
}

// A button that copies what `text()` gives, and says so.
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    try {
      await copyText(text());
      button.replaceChildren(icon("check"));
      announce("Copied");
      setTimeout(() => button.replaceChildren(icon("copy")), 1500);
    } catch (error) {
      notice(`Could not copy: ${error.message}`, { isError: true });
    }
  });
  return button;
}

export function saveFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
