"""Messages and conversations: branches, tools, files, settings, what is kept."""

import json
import re

from conftest import allow_errors
from playwright.sync_api import expect


def contents(request):
    return [(message["role"], message["content"]) for message in request["messages"]]


def test_answering_again_keeps_the_earlier_answer(page, model):
    """The earlier answer is lost, or both stand in the prompt."""
    page.ask("hello")
    page.press("Answer again", page.answer())
    page.wait()
    assert contents(model.requests[1]) == [("user", "hello")]
    expect(page.locator(".message[data-role=assistant]")).to_have_count(1)
    expect(page.answer().locator(".version")).to_have_text("2/2")
    page.press("Earlier version", page.answer())
    expect(page.answer().locator(".version")).to_have_text("1/2")
    page.keyboard.press("Alt+r")
    expect(page.answer().locator(".version")).to_have_text("3/3")
    page.wait()


def test_editing_a_message_begins_a_branch(page, model):
    """An edited message does not change the prompt, or the old branch is lost."""
    page.ask("hello")
    page.ask("more hello")
    first = page.locator(".message[data-role=user]").first
    first.hover()
    page.press("Edit", first)
    field = page.get_by_label("Your message")
    expect(field).to_be_focused()
    expect(field).to_have_value("hello")
    page.picture("edit")
    field.fill("other")
    page.keyboard.press("Enter")
    page.wait()
    expect(page.answer().locator(".content")).to_have_text("Another answer.")
    assert contents(model.requests[2]) == [("user", "other")]
    expect(page.locator(".message")).to_have_count(2)
    page.press("Earlier version", page.question())
    expect(page.locator(".message")).to_have_count(4)
    page.press("Later version", page.locator(".message[data-role=user]").first)
    expect(page.answer().locator(".content")).to_have_text("Another answer.")


def test_arrow_up_edits_the_last_message_and_escape_leaves(page, model):
    """The keys do something else, or the edit is sent."""
    page.ask("hello")
    page.locator("#input").press("ArrowUp")
    expect(page.get_by_label("Your message")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Your message")).to_have_count(0)
    expect(page.question()).to_contain_text("hello")
    assert len(model.requests) == 1


def test_deleting_a_message_deletes_what_follows(page, model):
    """Deleted text stays in the prompt."""
    page.ask("hello")
    page.ask("more hello")
    page.press("Delete", page.question())
    page.picture("confirm")
    page.press("Cancel", page.locator("#ask"))
    expect(page.locator(".message")).to_have_count(4)
    page.press("Delete", page.question())
    page.press("Delete", page.locator("#ask"))
    expect(page.locator(".message")).to_have_count(2)
    page.ask("other")
    assert len(model.requests[2]["messages"]) == 3


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def set_tools(page, text):
    page.keyboard.press("Alt+s")
    page.get_by_label("Tools", exact=False).fill(text)
    page.press("Save", page.locator("#settings"))


def test_tools_are_called_and_answered(page, model):
    """Calls are not shown as they come, or their results do not reach the model."""
    set_tools(page, json.dumps(TOOLS))
    page.say("tool")
    card = page.answer().locator(".call").first
    expect(card.locator("pre").first).to_have_text('{\n  "city": "Par')
    expect(card).to_have_attribute("aria-label", "Call of weather")
    model.gate("arguments").set()
    page.wait()
    assert model.requests[0]["tools"] == TOOLS
    expect(card.locator("pre").first).to_have_text('{\n  "city": "Paris",\n  "days": [\n    1,\n    2\n  ]\n}')
    expect(page.answer().locator(".call").nth(1).locator("pre").first).to_have_text("{}")
    page.get_by_label("Result of weather").fill('{"sky": "clear"}')
    page.get_by_label("Result of clock").fill("noon")
    page.picture("tools")
    page.press("Send the results")
    page.wait()
    assistant, first, second = model.requests[1]["messages"][1:]
    assert assistant["content"] == "I look it up."
    called = [(c["id"], c["type"], c["function"]["name"], c["function"]["arguments"]) for c in assistant["tool_calls"]]
    weather = ("call_a", "function", "weather", '{"city":"Paris","days":[1,2]}')
    assert called == [weather, ("call_b", "function", "clock", "{}")]
    assert first == {"role": "tool", "tool_call_id": "call_a", "content": '{"sky": "clear"}'}
    assert second == {"role": "tool", "tool_call_id": "call_b", "content": "noon"}
    expect(page.answer().locator(".content")).to_have_text("It is sunny in Paris.")
    page.open()
    page.press("tool")
    page.locator(".call summary").first.click()
    expect(page.get_by_label("Result of weather")).to_have_text('{"sky": "clear"}')
    page.picture("tools-answered")


def test_bad_tools_are_refused_with_the_reason(page, model):
    """A mistake in the tools shows as an error of the server, or not at all."""
    for text, reason in [
        ("[{", "Not JSON"), ("{}", "must be a JSON array"), ('[{"name": "a"}]', "Tool 1 must look like"),
    ]:
        page.keyboard.press("Alt+s")
        page.get_by_label("Tools", exact=False).fill(text)
        page.press("Save", page.locator("#settings"))
        expect(page.locator("#tools-error")).to_contain_text(reason)
        expect(page.get_by_label("Tools", exact=False)).to_have_attribute("aria-invalid", "true")
        page.press("Cancel", page.locator("#settings"))


def test_settings_reach_the_server_and_stay(page, model):
    """A control does nothing, or is forgotten."""
    values = {
        "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "presence_penalty": 1.5,
        "repetition_penalty": 1.1, "seed": 0, "max_tokens": 100, "thinking_budget": 2000,
    }
    page.press("Settings")
    form = page.locator("#settings-form")
    for name, value in values.items():
        form.locator(f"[name={name}]").fill(str(value))
    form.locator("[name=thinking]").select_option("On")
    form.locator("[name=system]").fill("Be brief.")
    page.picture("settings")
    page.press("Save", form)
    page.ask("hello")
    request = model.requests[0]
    assert {name: request[name] for name in values} == values
    assert request["chat_template_kwargs"] == {"enable_thinking": True}
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    page.open()
    page.ask("hello")
    assert model.requests[1]["temperature"] == 0.7
    assert model.requests[1]["messages"][0]["content"] == "Be brief."
    page.press("Settings")
    page.press("Defaults")
    form.locator("[name=thinking]").select_option("Off")
    page.press("Save", form)
    page.ask("hello")
    assert "temperature" not in model.requests[2]
    assert model.requests[2]["chat_template_kwargs"] == {"enable_thinking": False}
    assert model.requests[2]["messages"][0]["role"] == "user"


def test_a_number_out_of_range_is_refused(page, model):
    """The server gets values that it refuses."""
    page.press("Settings")
    page.locator("[name=temperature]").fill("-1")
    page.press("Save", page.locator("#settings"))
    expect(page.locator("#settings")).to_be_visible()
    assert page.locator("[name=temperature]").evaluate("e => e.validity.rangeUnderflow")


def test_text_files_go_along(page, model):
    """The model sees no file, or one that ends its own fence."""
    code = "def f():\r\n    return '```'\r\n"
    page.locator("#attach-file").set_input_files({"name": "f`1.py", "mimeType": "text/x-python", "buffer": code.encode()})
    expect(page.locator("#attachments")).to_contain_text("f_1.py")
    page.picture("attached")
    page.ask("hello")
    expected = "File `f_1.py`:\n````\ndef f():\n    return '```'\n````\n\nhello"
    assert contents(model.requests[0]) == [("user", expected)]
    expect(page.locator("#attachments")).to_be_hidden()
    page.question().locator(".file summary").click()
    expect(page.question().locator(".file pre")).to_contain_text("return '```'")
    page.locator("#attach-file").set_input_files(
        {"name": "wide.txt", "mimeType": "text/plain", "buffer": "zwölf".encode("utf-16")})
    page.press("Send")
    page.wait()
    assert "zwölf" in contents(model.requests[1])[-1][1]


def test_other_files_are_refused(page, model):
    """Binary or huge files become garbage in the prompt."""
    cases = [
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00", "is not a text file"),
        ("b.txt", b"caf\xe9", "is not a text file"),
        ("c.txt", b"a" * (1 << 20) + b"b", "no more than 1 MB"),
        ("d.txt", b" \n", "is empty"),
    ]
    for name, data, reason in cases:
        page.locator("#attach-file").set_input_files({"name": name, "mimeType": "text/plain", "buffer": data})
        message = page.get_by_role("alert").filter(has_text=name)
        expect(message).to_contain_text(reason)
        page.press("Close this message", message)
    expect(page.locator("#attachments")).to_be_hidden()
    names = [{"name": f"{i}.txt", "mimeType": "text/plain", "buffer": b"a"} for i in range(11)]
    page.locator("#attach-file").set_input_files(names)
    expect(page.get_by_role("alert")).to_contain_text("No more than 10 files")
    page.press("Remove 0.txt")
    expect(page.locator(".chip")).to_have_count(9)


def test_conversations_are_kept_and_listed(page, model):
    """A reload loses what was said."""
    page.ask("hello")
    page.keyboard.press("Alt+n")
    expect(page.locator(".message")).to_have_count(0)
    page.ask("other")
    expect(page.locator(".conversation")).to_have_text(["other", "hello"])
    page.open()
    expect(page.locator(".conversation")).to_have_text(["other", "hello"])
    page.press("hello")
    expect(page.answer().locator(".content")).to_have_text("Hello world!")
    expect(page.locator(".conversation[aria-current=page]")).to_have_text("hello")
    page.press("Rename “hello”")
    page.get_by_label("Title").fill("Greeting")
    page.press("Save", page.locator("#ask"))
    expect(page.locator(".conversation").filter(has_text="Greeting")).to_be_visible()
    page.press("Delete “Greeting”")
    page.press("Delete", page.locator("#ask"))
    expect(page.locator(".conversation")).to_have_text(["other"])
    page.open()
    expect(page.locator(".conversation")).to_have_text(["other"])


def test_conversations_can_be_exported_and_imported(new_page, model, tmp_path):
    """An export cannot be read again, or overwrites what is there."""
    page = new_page(accept_downloads=True)
    page.ask("hello")
    page.press("Answer again", page.answer())
    page.wait()
    with page.expect_download() as download:
        page.press("Export all")
    path = tmp_path / "all.json"
    download.value.save_as(path)
    other = new_page()
    other.locator("#import-file").set_input_files(path)
    expect(other.locator(".conversation")).to_have_text(["hello"])
    other.press("hello")
    expect(other.answer().locator(".content")).to_have_text("Hello world!")
    expect(other.answer().locator(".version")).to_have_text("2/2")
    other.locator("#import-file").set_input_files(path)
    expect(other.locator(".conversation")).to_have_text(["hello", "hello"])
    other.ask("more hello")
    assert len(model.requests[-1]["messages"]) == 3


def test_damaged_exports_are_refused(page, model):
    """A broken or hostile file breaks the page."""
    message = {"id": "a", "parent": None, "role": "user", "content": "hi", "created_ms": 1, "attachments": []}
    good = {"id": "x", "title": "t", "system": "", "head": "a", "created_ms": 1, "updated_ms": 1, "messages": {"a": message}}

    def file(**changes):
        return json.dumps({"format": "flash-moe-conversations-1", "conversations": [good | changes]})

    cases = [
        ("{", "is not JSON"),
        ("[]", "was not exported from this page"),
        ('{"format": "other", "conversations": []}', "was not exported from this page"),
        (file(messages=None), "no messages"),
        (file(title=1), '"title" is not a text'),
        (file(head="b"), "newest message is missing"),
        (file(messages={"a": message | {"parent": "b"}}), "follows one that is missing"),
        (file(messages={"a": message | {"parent": "a"}}), "circle"),
        (file(messages={"a": message | {"role": "root"}}), "unknown role"),
        (file(messages={"a": message | {"attachments": [1]}}), "not a text"),
    ]
    for text, reason in cases:
        page.locator("#import-file").set_input_files({"name": "x.json", "mimeType": "", "buffer": text.encode()})
        alert = page.get_by_role("alert").filter(has_text="x.json")
        expect(alert).to_contain_text(reason)
        page.press("Close this message", alert)
    expect(page.locator(".conversation")).to_have_count(0)
    page.locator("#import-file").set_input_files({"name": "x.json", "mimeType": "", "buffer": file().encode()})
    expect(page.locator(".conversation")).to_have_text(["t"])


def test_an_answer_goes_on_behind_another_conversation(page, model):
    """Looking at another conversation stops or mixes up the answer."""
    page.ask("hello")
    page.keyboard.press("Alt+n")
    page.say("slow")
    expect(page.answer().locator(".content")).to_have_text("One")
    page.press("hello")
    expect(page.answer().locator(".content")).to_have_text("Hello world!")
    page.say("other")
    expect(page.locator(".notice")).to_contain_text("still coming")
    expect(page.locator("#input")).to_have_value("other")
    page.press("slow")
    expect(page.answer().locator(".content")).to_have_text("One")
    page.press("hello")
    model.gate("slow").set()
    page.wait()
    expect(page.answer().locator(".content")).to_have_text("Hello world!")
    page.press("slow")
    expect(page.answer().locator(".content")).to_have_text("One two.")
    assert len(model.requests) == 2


# Is a message with this text in the browser's database?
SAVED = """(content) => new Promise((resolve, reject) => {
  const opening = indexedDB.open("flash-moe");
  opening.onerror = reject;
  opening.onsuccess = () => {
    const all = opening.result.transaction("conversations").objectStore("conversations").getAll();
    all.onsuccess = () => {
      opening.result.close();
      resolve(all.result.some((c) => Object.values(c.messages).some((m) => m.content === content)));
    };
  };
})"""


def test_what_came_is_kept_when_the_tab_closes(page, model):
    """Half an answer is lost by a reload."""
    page.say("slow")
    page.until(SAVED, "One ")
    page.open()
    page.press("slow")
    expect(page.answer().locator(".content")).to_have_text("One")
    expect(page.answer().get_by_role("button", name="Continue")).to_be_visible()


def test_one_of_several_models_can_be_chosen(page, model):
    """Requests go to another model than the one shown."""
    model.models = ["demo-model", "other-model"]
    page.open()
    page.get_by_label("Model", exact=True).select_option("other-model")
    page.ask("hello")
    assert model.requests[0]["model"] == "other-model"


@allow_errors("Failed to load resource")
def test_a_page_that_was_opened_too_early_works_later(new_page, model):
    """A server that was still loading has no name for its model, and no request works."""
    model.models = None
    page = new_page(has_models=False)
    expect(page.get_by_role("alert")).to_contain_text("still loading")
    model.models = ["demo-model"]
    page.ask("hello")
    assert model.requests[0]["model"] == "demo-model"
    expect(page.answer().locator(".content")).to_have_text("Hello world!")


@allow_errors("ERR_FAILED|Failed to load resource")
def test_a_server_that_is_away_is_told(page, model):
    """The page waits for ever."""
    page.route("**/v1/chat/completions", lambda route: route.abort())
    page.ask("hello")
    expect(page.answer().locator(".problem")).to_contain_text("cannot be reached")
    expect(page.answer()).to_have_attribute("aria-label", re.compile("Assistant"))


NO_ROOM = """IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError'); }"""
NO_DATABASE = """Object.defineProperty(window, 'indexedDB', { value: undefined })"""


def test_a_full_or_closed_store_is_told(new_page, model):
    """Without room in the browser the chat stops, or nobody knows that it is not kept."""
    full = new_page(before=NO_ROOM)
    full.ask("hello")
    full.ask("more hello")
    expect(full.answer().locator(".content")).to_have_text("Hello world!")
    expect(full.get_by_role("alert")).to_have_count(1)
    expect(full.get_by_role("alert")).to_contain_text("no room left")
    private = new_page(before=NO_DATABASE)
    expect(private.locator(".notice")).to_contain_text("keeps no data")
    private.ask("hello")
    private.keyboard.press("Alt+n")
    private.press("hello")
    expect(private.answer().locator(".content")).to_have_text("Hello world!")


def test_files_can_be_dropped_and_pasted(page, model):
    """The browser leaves the page to show the file, or its text is lost."""
    for kind, attribute in (("drop", "dataTransfer"), ("paste", "clipboardData")):
        page.locator("#input").evaluate("""(field, [kind, attribute]) => {
          const data = new DataTransfer();
          data.items.add(new File(['by ' + kind], kind + '.txt'));
          const Kind = kind === 'drop' ? DragEvent : ClipboardEvent;
          field.dispatchEvent(new Kind(kind, { [attribute]: data, bubbles: true, cancelable: true }));
        }""", [kind, attribute])
        expect(page.locator("#attachments")).to_contain_text(f"{kind}.txt")
    page.press("Send")
    page.wait()
    assert "by drop" in model.requests[0]["messages"][0]["content"]
    assert "by paste" in model.requests[0]["messages"][0]["content"]
