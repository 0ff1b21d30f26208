"""Keyboard, screen readers, contrast, small windows, dark and light."""

import re

import pytest
from playwright.sync_api import expect

# Text that is seen, with its colour and the colour behind it, flattened onto the nearest opaque ground.
TEXTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, ground) => top.slice(0, 3).map((c, i) => c * top[3] + ground[i] * (1 - top[3]));
  const groundOf = (element) => {
    if (!element) return [255, 255, 255];
    const own = rgba(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, groundOf(element.parentElement));
  };
  const texts = [];
  for (const element of document.querySelectorAll('body *')) {
    const direct = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join('');
    const isField = element.matches('input:not([type=file]), textarea, select');
    if (!direct && !isField) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    if (element.closest('.sr-only, :disabled, option, .skip')) continue;
    const ground = groundOf(element);
    const style = getComputedStyle(element);
    const add = (colour, what) => texts.push({ what, colour: over(rgba(colour), ground), ground });
    add(style.color, `${element.tagName} ${element.className}: ${direct.slice(0, 30)}`);
    if (element.placeholder) add(getComputedStyle(element, '::placeholder').color, `placeholder ${element.placeholder}`);
  }
  return texts;
}"""


def luminance(colour):
    def linear(c):
        c /= 255
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    r, g, b = map(linear, colour)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def check_contrast(page, n_text_min):
    texts = page.evaluate(TEXTS)
    assert len(texts) >= n_text_min, len(texts)
    low = [(t["what"], round(contrast(t["colour"], t["ground"]), 2)) for t in texts
           if contrast(t["colour"], t["ground"]) < 4.5]
    assert not low, low


# Names, roles and duplicate ids, as axe would look at them.
FAULTS = """() => {
  const faults = [];
  const seen = (e) => e.checkVisibility({ visibilityProperty: true });
  const labelled = (e) => (e.getAttribute('aria-labelledby') ?? '').split(' ').filter(Boolean)
    .map((id) => document.getElementById(id)?.textContent ?? '').join(' ');
  const nameOf = (e) => (e.getAttribute('aria-label') || labelled(e) || [...(e.labels ?? [])].map((l) => l.innerText).join(' ')
    || e.innerText || '').trim();
  const named = 'button, a, input:not([hidden]), select, textarea, summary, [role=region], nav, dialog[open]';
  for (const e of document.querySelectorAll(named)) {
    if (seen(e) && !nameOf(e)) faults.push(`no name: ${e.outerHTML.slice(0, 120)}`);
  }
  for (const e of document.querySelectorAll('[aria-controls], [aria-labelledby], [aria-describedby], label[for]')) {
    for (const attribute of ['aria-controls', 'aria-labelledby', 'aria-describedby', 'for']) {
      for (const id of (e.getAttribute(attribute) ?? '').split(' ').filter(Boolean)) {
        if (!document.getElementById(id)) faults.push(`${attribute} leads nowhere: ${id}`);
      }
    }
  }
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) faults.push(`id twice: ${id}`);
  for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) faults.push(`tabindex ${e.tabIndex}`);
  for (const e of document.querySelectorAll('pre, .table')) {
    if (seen(e) && (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight) && e.tabIndex < 0) {
      faults.push(`not scrollable by keys: ${e.className || e.tagName}`);
    }
  }
  for (const e of document.querySelectorAll('button, a, select')) {
    const { width, height } = e.getBoundingClientRect();
    const inText = e.closest('.content p, .content td, .content li') || e.closest('.skip, .sr-only');
    if (seen(e) && !inText && (width < 24 || height < 24)) faults.push(`small: ${nameOf(e)} ${width}x${height}`);
  }
  if (!document.documentElement.lang) faults.push('no language');
  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  if (document.querySelectorAll('main').length !== 1) faults.push('not one main');
  return faults;
}"""


def check_all(page, n_text_min):
    faults = page.evaluate(FAULTS)
    assert not faults, faults
    check_contrast(page, n_text_min)


def tool_results(page, model):
    page.say("tool")
    model.gate("arguments").set()
    page.wait()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everything_has_a_name_and_contrast(new_page, model, colours):
    """People with weak eyes, or with a screen reader, cannot use the page."""
    page = new_page(color_scheme=colours)
    page.picture(f"empty-{colours}")
    check_all(page, 8)
    model.gate("think").set()
    page.ask("thinking")
    page.ask("markdown")
    page.ask("length")
    page.ask("error")
    tool_results(page, model)
    page.picture(f"chat-{colours}")
    page.evaluate("document.querySelectorAll('.buttons').forEach((e) => e.classList.add('seen'))")
    check_all(page, 60)
    page.keyboard.press("Alt+s")
    page.picture(f"settings-{colours}")
    check_all(page, 60)
    page.press("Cancel", page.locator("#settings"))
    page.press("Keyboard shortcuts")
    page.picture(f"shortcuts-{colours}")
    check_all(page, 60)


def test_the_theme_switch_goes_round_and_stays(new_page, model):
    """The choice is forgotten, or the system's colours cannot be had back."""
    page = new_page(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.press("Colours: as the system")
    assert page.evaluate(ground) == light
    page.press("Colours: light")
    dark = page.evaluate(ground)
    assert dark != light
    page.open()
    assert page.evaluate(ground) == dark
    page.press("Colours: dark")
    assert page.evaluate(ground) == light
    page.page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == dark


def test_the_page_works_by_keyboard(page, model):
    """Something needs a mouse, or the focus is lost."""
    expect(page.locator("#input")).to_be_focused()
    page.keyboard.type("two")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("hello")
    page.keyboard.press("Enter")
    page.wait()
    assert model.requests[0]["messages"][0]["content"] == "two\nhello"
    expect(page.locator("#input")).to_be_focused()
    page.locator("body").press("?")
    expect(page.locator("#shortcuts")).not_to_be_visible()
    page.locator("#input").fill("")
    page.locator("#scroller").focus()
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#shortcuts")).not_to_be_visible()
    expect(page.locator("#scroller")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#input")).to_be_focused()
    page.keyboard.press("Alt+s")
    expect(page.locator("#settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#input")).to_be_focused()
    page.keyboard.press("Alt+l")
    expect(page.locator("#sidebar")).not_to_be_visible()
    page.keyboard.press("Alt+l")
    expect(page.locator(".conversation")).to_be_focused()


def test_the_order_of_focus_is_that_of_reading(page, model):
    """Tab jumps about, or reaches what is hidden."""
    page.ask("hello")
    page.locator(".skip").focus()
    names = []
    for _ in range(40):
        name = page.evaluate("""() => {
          const e = document.activeElement;
          if (e === document.body) return null;
          if (!e.checkVisibility()) return `hidden: ${e.outerHTML}`;
          return e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim() || e.textContent.trim();
        }""")
        if name is None or name in names[:1]:
            break
        names.append(name)
        page.keyboard.press("Tab")
    assert not [name for name in names if name.startswith("hidden")], names
    wanted = ["Skip to the message field", "New chat", "hello", "Export all", "Conversations", "Settings", "Edit",
              "Answer again", "Message", "Attach a text file", "Send"]
    places = [names.index(name) for name in wanted]
    assert places == sorted(places), names


def test_screen_readers_hear_what_happens(page, model):
    """Nothing tells that the answer has come, or each word of it is read out."""
    expect(page.get_by_role("log")).to_have_attribute("aria-live", "off")
    status = page.locator("#announcer")
    expect(status).to_have_attribute("aria-live", "polite")
    page.say("slow")
    expect(status).to_have_text("Waiting for the answer")
    model.gate("slow").set()
    expect(status).to_have_text("The answer is complete")
    expect(page.get_by_role("article", name="You")).to_have_count(1)
    expect(page.get_by_role("article", name="Assistant")).to_have_count(1)
    page.ask("error")
    expect(status).to_have_text("Error: the drive failed")
    tool_results(page, model)
    expect(status).to_have_text("The model calls a tool")
    expect(page.get_by_role("region", name="Call of weather")).to_be_visible()


def test_reduced_motion_is_respected(new_page, model):
    """Things move for people whom that makes ill."""
    page = new_page(reduced_motion="reduce")
    page.say("progress")
    moving = "document.getAnimations().filter((a) => a.playState === 'running').length"
    expect(page.locator("#progress-text")).to_contain_text("40 %")
    assert page.evaluate(moving) == 0
    page.page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function(f"{moving} > 0")


@pytest.mark.parametrize("width", [320, 360, 768])
def test_small_windows_need_no_sideways_scrolling(new_page, model, width):
    """On a phone the page is cut off, or buttons cannot be reached."""
    page = new_page(width=width, height=640, has_touch=True, color_scheme="dark" if width == 320 else "light")
    page.picture(f"phone-{width}-empty")
    page.ask("markdown")
    model.gate("think").set()
    page.ask("thinking " + "verylongword" * 20 + " thinking")
    page.picture(f"phone-{width}-thinking")
    tool_results(page, model)
    page.locator("#attach-file").set_input_files({"name": f"{'long' * 20}.txt", "mimeType": "text/plain", "buffer": b"a"})
    page.picture(f"phone-{width}-tools")
    page.locator("#scroller").evaluate("e => e.scrollTop = 0")
    page.picture(f"phone-{width}-markdown")
    wide = """() => [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('.sr-only, pre, .table')
      && !(e.closest('#sidebar')) && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 100))"""
    assert page.evaluate(wide) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.press("Settings")
    page.picture(f"phone-{width}-settings")
    assert page.evaluate(wide) == []
    page.press("Cancel", page.locator("#settings"))


def test_conversations_cover_the_page_on_a_phone(new_page, model):
    """The list cannot be closed, or what is below it takes the focus."""
    page = new_page(width=360, height=640)
    expect(page.locator("#sidebar")).not_to_be_visible()
    page.ask("hello")
    page.press("Conversations")
    expect(page.locator("#sidebar")).to_be_visible()
    page.picture("phone-list")
    assert page.locator("#page").evaluate("e => e.inert")
    page.keyboard.press("Escape")
    expect(page.locator("#sidebar")).not_to_be_visible()
    expect(page.locator("#toggle-sidebar")).to_be_focused()
    page.press("Conversations")
    page.press("New chat")
    expect(page.locator("#sidebar")).not_to_be_visible()
    page.press("Conversations")
    page.locator("#scrim").click(position={"x": 340, "y": 300})
    expect(page.locator("#sidebar")).not_to_be_visible()
    assert not page.locator("#page").evaluate("e => e.inert")


def test_a_conversation_works_with_any_server(page):
    """The page and the server do not understand each other."""
    page.say("Say hello in one short sentence.")
    expect(page.answer()).to_have_count(1)
    expect(page.locator("#send")).to_be_visible(timeout=120_000)
    expect(page.answer().locator(".problem:not(.mild)")).to_be_hidden()
    expect(page.answer()).to_have_text(re.compile(r"\w"))
    expect(page.locator("#figures")).to_contain_text("tok/s")
    page.picture("server")
    page.press("Settings")
    page.locator("[name=max_tokens]").fill("1000")
    page.press("Save", page.locator("#settings"))
    page.say("Write a long story about the sea.")
    page.wait_for_function("document.querySelectorAll('.message')[3]?.querySelector('.content, .thinking').textContent.length > 0")
    page.keyboard.press("Escape")
    expect(page.locator("#send")).to_be_visible()
    page.reload()
    expect(page.locator(".conversation")).to_have_count(1)
    page.locator(".conversation").click()
    expect(page.locator(".message")).to_have_count(4)
    check_all(page, 10)
