"""What is shown while an answer comes, and after."""

import json
import re

import mock
from conftest import allow_errors
from playwright.sync_api import expect


def test_an_answer_streams_in(page, model):
    """The answer does not appear, or only at its end."""
    page.say("slow")
    expect(page.answer().locator(".content")).to_have_text("One")
    expect(page.locator("#stop")).to_be_visible()
    model.gate("slow").set()
    expect(page.answer().locator(".content")).to_have_text("One two.")
    page.wait()
    expect(page.locator("#title")).to_have_text("slow")


def test_the_request_has_all_that_is_needed(page, model):
    """The server streams nothing, or tells no speeds."""
    page.ask("hello")
    request = model.requests[0]
    assert request["model"] == "demo-model"
    assert request["messages"] == [{"role": "user", "content": "hello"}]
    assert request["stream"] and request["return_progress"] and request["timings_per_token"]
    assert request["stream_options"] == {"include_usage": True}
    assert "temperature" not in request and "tools" not in request and "chat_template_kwargs" not in request
    page.ask("other")
    roles = [message["role"] for message in model.requests[1]["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert model.requests[1]["messages"][1]["content"] == "Hello **world**!"


def test_markdown_is_shown_in_colours(page, model):
    """Code, tables and lists look like plain text."""
    page.ask("markdown")
    content = page.answer().locator(".content")
    expect(content.get_by_role("heading", level=2)).to_have_text("Sorting in two languages")
    expect(content.locator(".code")).to_have_count(2)
    expect(content.locator(".code-head").first).to_contain_text("rust")
    expect(content.locator(".hl-keyword").first).to_have_text("fn")
    expect(content.locator("td.right").first).to_have_text("12.5")
    expect(content.locator("ol > li")).to_have_count(2)
    link = content.get_by_role("link", name="the manual")
    expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(link).to_have_attribute("target", "_blank")
    expect(content.locator("img")).to_have_count(0)
    expect(content.get_by_role("link", name="image: a picture")).to_be_visible()
    expect(content).to_contain_text("<b>bold</b>")
    page.picture("markdown")
    page.locator("#scroller").evaluate("e => e.scrollTop = 0")
    page.picture("markdown-top")


def test_streamed_and_reloaded_answers_are_equal(page, model):
    """An answer looks different when the conversation is opened again."""
    page.say("halves")
    expect(page.answer().locator("li")).to_have_count(5)
    table = page.answer().locator("table").element_handle()
    model.gate("halves").set()
    page.wait()
    expect(page.answer().locator(".code")).to_have_count(2)
    assert table.is_visible(), "what was settled was made anew"
    # The last block is in an element of its own.
    page.answer().locator(".tail").evaluate("e => e.replaceWith(...e.childNodes)")
    streamed = page.answer().locator(".content").evaluate("e => e.innerHTML")
    page.open()
    page.press("halves")
    expect(page.answer().locator("table")).to_be_visible()
    assert page.answer().locator(".content").evaluate("e => e.innerHTML") == streamed


def test_code_can_be_copied(page, model):
    """The copy button copies something else."""
    page.ask("markdown")
    page.press("Copy this code", page.answer().locator(".code").last)
    expected = mock.MARKDOWN.split("```python\n")[1].split("```")[0]
    expect(page.locator("#announcer")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == expected
    page.press("Copy", page.answer().locator(".buttons"))
    page.until("async (text) => await navigator.clipboard.readText() === text", mock.MARKDOWN)


def test_a_long_answer_renders_each_block_once(page, model):
    """The work for an answer grows with the square of its length."""
    page.say("long")
    for i in range(20):
        expect(page.answer().locator(".content p")).to_have_count(10 * (i + 1))
        model.gate(f"long{i}").set()
    page.wait()
    paragraphs = [f"Paragraph {i} of a long answer." for i in range(200)]
    assert page.answer().locator(".content p").all_inner_texts() == paragraphs
    whole = sum(len(paragraph) + 2 for paragraph in paragraphs)
    sent = [len(render["markdown"]) for render in model.renders]
    assert len(sent) > 20
    # All of it as it comes and once more at the end, and each time the block before, which might still have changed.
    assert sum(sent) < 2 * whole + 100 * len(sent), (sum(sent), whole, len(sent))


def test_links_defined_at_the_end_work(page, model):
    """A link whose target comes last stays text."""
    page.say("definition")
    expect(page.answer()).to_contain_text("[it][1]")
    model.gate("definition").set()
    expect(page.answer().get_by_role("link", name="it")).to_have_attribute("href", "https://example.org/it")


@allow_errors("status of 500")
def test_text_is_shown_if_rendering_fails(page, model):
    """An answer is lost with the renderer."""
    model.render_fails = True
    page.ask("markdown")
    expect(page.answer().locator(".content .plain")).to_contain_text("# Sorting in two languages")
    model.render_fails = False
    page.open()
    page.press("markdown")
    expect(page.answer().locator("table")).to_be_visible()


def test_hostile_text_does_nothing(page, model):
    """Text of a model runs in the page, or makes it call other servers."""
    page.ask("hostile")
    expect(page.answer().locator(".code")).to_be_visible()
    assert page.evaluate("window.hacked") is None
    expect(page.answer().locator(".content :is(script, img, svg:not(.icon), iframe)")).to_have_count(0)
    expect(page.answer().locator("a[href^='javascript']")).to_have_count(0)


@allow_errors("TrustedHTML|Trusted Type")
def test_html_is_refused_where_it_is_not_made(page, model):
    """A hole in the sanitiser would be open."""
    blocked = page.evaluate("""() => {
      try { document.body.innerHTML = '<img>'; return false; } catch (error) { return error.name; }
    }""")
    assert blocked == "TypeError"


def test_thinking_is_folded_and_timed(page, model):
    """Thoughts stand in the answer, or are nowhere."""
    page.say("thinking")
    thinking = page.answer().locator(".thinking")
    expect(thinking.locator("summary")).to_have_text(re.compile(r"^Thinking, .*\d s$"))
    expect(thinking.locator(".thinking-text")).not_to_be_visible()
    thinking.locator("summary").click()
    expect(thinking.locator(".thinking-text")).to_have_text("Let me think.\nStep two.")
    model.gate("think").set()
    page.wait()
    expect(thinking.locator("summary")).to_have_text(re.compile(r"^Thought for .*\d s$"))
    expect(thinking.locator(".thinking-text")).to_be_visible()
    expect(page.answer().locator(".content")).to_have_text("So: 42.")
    page.picture("thinking")
    page.ask("hello")
    assert model.requests[1]["messages"][1]["reasoning_content"] == "Let me think.\nStep two."


def test_progress_of_a_long_prompt(page, model):
    """Nobody knows whether a long prompt is still read."""
    page.say("progress")
    text = page.locator("#progress-text")
    # 600 of 3,000 in 3 s: 12 s are left.
    expect(text).to_have_text("Reading the prompt: 40 %, 12 s left")
    assert abs(page.locator("#progress-bar").evaluate("e => e.value") - 0.4) < 1e-9
    page.picture("progress")
    model.gate("half").set()
    page.wait()
    expect(page.locator("#progress")).to_be_hidden()


def test_figures_are_shown_live_and_after(page, model):
    """Speed, hit rate, drive rate and context are missing, or wrong."""
    page.say("live")
    figures = page.locator("#figures")
    expect(figures).to_contain_text("5.5 tok/s")
    expect(figures).not_to_contain_text("Cache hits")
    model.gate("live").set()
    page.wait()
    for part in ("12.3 tok/s", "85 %", "3.2 GB/s", "2,258 of 32,768"):
        expect(figures).to_contain_text(part)
    expect(page.answer().locator(".summary")).to_have_text("1,234 tokens · 12.3 tok/s · prompt: 1,000 of 1,024 from cache")
    page.ask("nulls")
    expect(figures).to_have_text("")


def test_stop_keeps_what_came_and_tells_the_server(page, model):
    """The server goes on computing, or the text is lost."""
    page.say("endless")
    expect(page.answer().locator(".content")).to_contain_text("word3")
    page.keyboard.press("Escape")
    page.wait()
    assert model.gone.wait(10), "the connection is still open"
    expect(page.answer().locator(".content")).to_contain_text("word3")
    expect(page.answer().locator(".problem")).to_be_hidden()
    expect(page.locator("#announcer")).to_have_text("Stopped")


def test_a_stopped_answer_can_be_continued(page, model):
    """What came before the stop has to be computed again."""
    page.say("slow")
    expect(page.answer().locator(".content")).to_have_text("One")
    page.press("Stop")
    page.press("Continue", page.answer())
    page.wait()
    assert model.requests[1]["messages"][-1] == {"role": "assistant", "content": "One "}
    expect(page.answer().locator(".content")).to_have_text("One and the rest.")
    expect(page.locator(".message[data-role=assistant]")).to_have_count(1)


def test_the_length_limit_is_told(page, model):
    """An answer that was cut looks whole."""
    page.ask("length")
    expect(page.answer().locator(".problem")).to_contain_text("longest length")
    page.press("Continue", page.answer())
    page.wait()
    expect(page.answer().locator(".content")).to_have_text("Cut of and the rest.")
    expect(page.answer().locator(".problem")).to_be_hidden()


def test_an_error_in_the_stream_is_told(page, model):
    """The answer ends without a word."""
    page.ask("error")
    expect(page.answer().locator(".content")).to_have_text("The start")
    expect(page.answer().locator(".problem")).to_have_text("the drive failed")
    page.picture("error")
    page.ask("broken")
    expect(page.answer().locator(".problem")).to_contain_text("connection ended before the answer")


@allow_errors("status of 400")
def test_a_refused_request_is_told_and_can_be_sent_again(page, model):
    """The reason is lost, or the failed answer stands in the next prompt."""
    model.refusals = [(400, "the context has 32,768 tokens; the prompt has 40,000")]
    page.ask("hello")
    expect(page.answer().locator(".problem")).to_contain_text("the prompt has 40,000")
    page.press("Answer again", page.answer())
    expect(page.answer().locator(".content")).to_have_text("Hello world!")
    assert model.requests[1]["messages"] == [{"role": "user", "content": "hello"}]


@allow_errors("status of 429")
def test_a_busy_server_is_asked_again(page, model):
    """A full queue is an error for the user."""
    model.refusals = [(429, "the queue is full", [("Retry-After", "1")])]
    page.say("hello")
    expect(page.locator("#progress-text")).to_contain_text("busy")
    expect(page.answer().locator(".content")).to_have_text("Hello world!")
    assert len(model.requests) == 2


@allow_errors("status of 429")
def test_waiting_for_a_busy_server_can_be_stopped(page, model):
    """Nothing but a reload ends the wait."""
    model.refusals = [(429, "the queue is full", [("Retry-After", "60")])]
    page.say("hello")
    expect(page.locator("#progress-text")).to_contain_text("60 s")
    page.keyboard.press("Escape")
    page.wait()
    assert len(model.requests) == 1


@allow_errors("status of 401")
def test_the_key_is_asked_for_and_kept_for_the_tab(new_page, model):
    """A server with a key cannot be used."""
    model.api_key = "secret"
    page = new_page(has_models=False)
    page.get_by_label("Key of this server").fill("wrong")
    page.press("Continue")
    expect(page.get_by_label("Key of this server")).to_have_value("")
    page.picture("key")
    page.get_by_label("Key of this server").fill("secret")
    page.press("Continue")
    expect(page.locator("#model")).to_have_value("demo-model")
    page.ask("hello")
    expect(page.answer().locator(".content")).to_have_text("Hello world!")
    page.open()
    page.ask("hello")
    assert page.evaluate("JSON.stringify(localStorage)").find("secret") < 0


def test_the_page_follows_the_answer_unless_scrolled(new_page, model):
    """The newest text is out of sight, or the page jumps while one reads."""
    page = new_page(height=500)
    page.say("tail")
    at_end = "() => { const e = document.getElementById('scroller'); return e.scrollHeight - e.scrollTop - e.clientHeight < 5; }"
    expect(page.answer().locator(".content p")).to_have_count(60)
    page.wait_for_function(at_end)
    page.locator("#scroller").evaluate("e => e.scrollTop = 100")
    expect(page.locator("#to-end")).to_be_visible()
    model.gate("tail").set()
    page.wait()
    expect(page.answer()).to_contain_text("The end.")
    assert page.locator("#scroller").evaluate("e => e.scrollTop") == 100
    page.picture("newest")
    page.press("Newest")
    page.wait_for_function(at_end)
    expect(page.locator("#to-end")).to_be_hidden()


def test_events_are_read_in_any_pieces(page, model):
    """A character or a line that is cut between two packets is garbled."""
    read = """async ([text, size]) => {
      const { events } = await import('/web/api.js');
      const bytes = new TextEncoder().encode(text);
      const body = new ReadableStream({ start(controller) {
        for (let i = 0; i < bytes.length; i += size) controller.enqueue(bytes.slice(i, i + size));
        controller.close();
      } });
      const found = [];
      for await (const data of events(body)) found.push(data);
      return found;
    }"""
    stream = ": alive\n\ndata: größer 𝄞\n\nevent: x\r\nid: 1\r\ndata:a\r\ndata: b\r\n\r\n: alive\n\n\ndata: {}\n\ndata: cut"
    for size in (1, 2, 3, 7, 1000):
        assert page.evaluate(read, [stream, size]) == ["größer 𝄞", "a\nb", "{}"], size


def test_arguments_are_laid_out_at_any_point(page, model):
    """Arguments that are still coming are a single line, or lose characters."""
    lay_out = "async (text) => (await import('/web/answer.js')).indented(text)"
    whole = json.dumps({"a": [1, {"b": 'x{},:"\\'}], "c": {}, "d": [], "e": "ß"})
    assert page.evaluate(lay_out, whole) == json.dumps(json.loads(whole), indent=2, ensure_ascii=True)
    for n in range(len(whole)):
        shown = page.evaluate(lay_out, whole[:n])
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", whole[:n]), n
    assert page.evaluate(lay_out, "not JSON }]").startswith("notJSON")


def test_calls_that_were_cut_are_not_sent_back(page, model):
    """The server gets half a call, or the page asks for its result."""
    page.say("tool")
    expect(page.answer().locator(".call")).to_have_count(1)
    page.keyboard.press("Escape")
    page.wait()
    expect(page.get_by_label("Result of weather")).to_have_count(0)
    page.ask("hello")
    assert model.requests[1]["messages"][1] == {"role": "assistant", "content": "I look it up."}
