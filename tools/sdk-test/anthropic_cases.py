"""The Anthropic SDK against a server with the demo model. Usage: anthropic_cases.py URL [NAME]"""

import sys

import anthropic
from harness import ONE_CITY, TWO_CITIES, WEATHER, case, main, raises

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=120)
MODEL = "demo"
TOOL = {"name": "get_weather", "description": "Current weather in a city", "input_schema": WEATHER}
HELLO = [{"role": "user", "content": "Hello!"}]
OFF = {"type": "disabled"}


def ask(messages=HELLO, **options):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    # Newer versions of the SDK have no sampling fields of their own.
    sampling = {"temperature": 0, **options.pop("sampling", {})}
    options = {"model": MODEL, "max_tokens": 200, "thinking": OFF, **options}
    return client.messages.create(messages=messages, extra_body=sampling, **options)


@case
def a_plain_answer():
    answer = ask()
    assert answer.type == "message" and answer.role == "assistant" and answer.stop_reason == "end_turn"
    [block] = answer.content
    assert block.type == "text" and block.text and answer.usage.output_tokens > 0


@case
def a_system_prompt_in_both_forms():
    whole = ask(system="Be short.")
    parts = ask(system=[{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}])
    assert whole.content == parts.content and whole.usage.input_tokens > 0


@case
def a_streamed_answer_is_the_same():
    whole = ask().content[0].text
    with client.messages.stream(
        model=MODEL, max_tokens=200, extra_body={"temperature": 0}, thinking=OFF, messages=HELLO
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole == final.content[0].text and final.stop_reason == "end_turn"


@case
def events_in_order():
    kinds = []
    for event in ask(TWO_CITIES, tools=[TOOL], stream=True):
        kinds.append(event.type)
    kinds = [kind for kind in kinds if kind != "ping"]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") >= 2


@case
def a_call():
    answer = ask(ONE_CITY, tools=[TOOL])
    [call] = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and call.name == "get_weather" and call.input == {"city": "Rome"}


@case
def streamed_calls_are_the_same():
    with client.messages.stream(
        model=MODEL,
        max_tokens=200,
        extra_body={"temperature": 0},
        thinking=OFF,
        tools=[TOOL],
        messages=[{"role": "user", "content": TWO_CITIES}],
    ) as stream:
        final = stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Rome"}, {"city": "Oslo"}] and len(
        {call.id for call in calls}
    ) == 2
    assert final.stop_reason == "tool_use"


@case
def the_result_of_a_call_is_answered():
    first = ask(ONE_CITY, tools=[TOOL])
    [call] = [block for block in first.content if block.type == "tool_use"]
    for content in ("sunny", [{"type": "text", "text": "sunny"}]):
        result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
        history = [
            {"role": "user", "content": ONE_CITY},
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        answer = ask(history, tools=[TOOL])
        assert answer.content[0].type == "text" and answer.content[0].text


@case
def a_failed_call_is_told():
    first = ask(ONE_CITY, tools=[TOOL])
    [call] = [block for block in first.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "is_error": True, "content": "no such city"}
    history = [
        {"role": "user", "content": ONE_CITY},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result, {"type": "text", "text": "Try again."}]},
    ]
    assert ask(history, tools=[TOOL]).content


@case
def a_choice_of_tools():
    assert ask("Hello!", tools=[TOOL], tool_choice={"type": "any"}).stop_reason == "tool_use"
    named = ask("Hello!", tools=[TOOL], tool_choice={"type": "tool", "name": "get_weather"})
    assert [block.name for block in named.content if block.type == "tool_use"] == ["get_weather"]
    none = ask(ONE_CITY, tools=[TOOL], tool_choice={"type": "none"})
    assert all(block.type == "text" for block in none.content)
    single = ask(TWO_CITIES, tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert len([block for block in single.content if block.type == "tool_use"]) == 1


@case
def thinking_is_a_block():
    thinking = {"type": "enabled", "budget_tokens": 1024}
    answer = ask("Who are you?", thinking=thinking, max_tokens=2000, sampling={"temperature": 1})
    kinds = [block.type for block in answer.content]
    assert kinds[-1] == "text" and set(kinds) <= {"thinking", "text"}
    history = [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": answer.content}, *HELLO]
    assert ask(history).content


@case
def thinking_is_streamed():
    with client.messages.stream(
        model=MODEL,
        max_tokens=2000,
        thinking={"type": "enabled", "budget_tokens": 1024},
        messages=[{"role": "user", "content": "Who are you?"}],
    ) as stream:
        assert stream.get_final_message().content[-1].type == "text"


@case
def tokens_are_counted():
    counted = client.messages.count_tokens(
        model=MODEL, system="S", messages=HELLO, tools=[TOOL], thinking=OFF
    ).input_tokens
    used = ask(system="S", tools=[TOOL]).usage
    kept = (used.cache_read_input_tokens or 0) + (used.cache_creation_input_tokens or 0)
    assert counted == used.input_tokens + kept


@case
def max_tokens_ends_it():
    answer = ask(max_tokens=3)
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 3


@case
def stop_sequences():
    whole = ask().content[0].text
    word = whole.split()[1]
    answer = ask(stop_sequences=[word])
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == word
    assert answer.content[0].text == whole[: whole.index(word)]


@case
def the_assistants_message_is_continued():
    history = [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am the Flash"}]
    text = ask(history, max_tokens=10).content[0].text
    assert text and not text.startswith("I am the Flash")


@case
def sampling():
    assert ask(sampling={"temperature": 0.7, "top_p": 0.9, "top_k": 10}).content


@case
def a_picture_is_refused():
    part = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    raises(anthropic.BadRequestError, lambda: ask([{"role": "user", "content": [part]}]), "image")


@case
def bad_values_are_refused():
    for sampling in ({"temperature": -1}, {"top_p": 2}):
        error = raises(anthropic.BadRequestError, lambda sampling=sampling: ask(sampling=sampling))
        assert error.body["type"] == "error" and error.body["error"]["type"] == "invalid_request_error"
    raises(anthropic.BadRequestError, lambda: ask([]))


@case
def too_long_a_prompt_is_refused():
    raises(anthropic.BadRequestError, lambda: ask("word " * 200_000), "context")


@case
def a_dropped_stream_ends_the_work():
    for _ in range(3):
        stream = ask("Tell me a long story.", stream=True, max_tokens=2000)
        next(iter(stream))
        stream.close()
    assert ask().content


@case
def models_are_listed():
    assert client.models.list().data[0].id


main("anthropic (Python)")
