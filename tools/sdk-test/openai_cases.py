"""The OpenAI SDK against a server with the demo model. Usage: openai_cases.py URL [NAME]"""

import json
import sys
import threading
import urllib.request

import openai
from harness import ONE_CITY, PERSON, TWO_CITIES, WEATHER, case, main, raises

URL = sys.argv[1]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0, timeout=120)
MODEL = client.models.list().data[0].id
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Current weather in a city", "parameters": WEATHER},
}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
HELLO = [{"role": "user", "content": "Hello!"}]


def chat(content="Hello!", **options):
    messages = options.pop("messages", [{"role": "user", "content": content}])
    extra = options.pop("extra_body", OFF)
    options = {"model": MODEL, "temperature": 0, "max_tokens": 200, **options}
    return client.chat.completions.create(messages=messages, extra_body=extra, **options)


def gather(stream):
    """What a stream says, put together: role, text, thinking, calls, reasons, usage."""
    text, thinking, calls, reasons, roles, usage = "", "", {}, [], [], None
    ids = set()
    for chunk in stream:
        ids.add((chunk.id, chunk.created, chunk.model, chunk.object))
        usage = chunk.usage or usage
        for choice in chunk.choices:
            delta = choice.delta
            roles += [delta.role] if delta.role else []
            text += delta.content or ""
            thinking += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                known = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "arguments": ""})
                assert call.id in (None, known["id"]), "an id is told once"
                known["arguments"] += call.function.arguments or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert len(ids) == 1, ids
    return {
        "text": text,
        "thinking": thinking,
        "calls": [calls[i] for i in sorted(calls)],
        "reasons": reasons,
        "roles": roles,
        "usage": usage,
    }


@case
def models_are_listed_with_their_context():
    model = client.models.list().data[0]
    assert model.object == "model" and model.id and model.created > 0
    assert client.models.retrieve(model.id).id == model.id
    assert model.model_dump()["context_length"] > 1000


@case
def an_unknown_model_is_not_found():
    raises(openai.NotFoundError, lambda: client.models.retrieve("no/such-model"))


@case
def a_plain_answer():
    answer = chat()
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and choice.message.role == "assistant"
    assert choice.message.content and choice.finish_reason == "stop"
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.completion_tokens > 0


@case
def a_streamed_answer_is_the_same():
    whole = chat()
    parts = gather(chat(stream=True))
    assert parts["text"] == whole.choices[0].message.content
    assert parts["reasons"] == ["stop"] and parts["roles"] == ["assistant"]
    assert parts["usage"] is None


@case
def usage_comes_last_if_it_is_wanted():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])


@case
def thinking_is_apart():
    answer = chat("Who are you?", extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    message = answer.choices[0].message
    assert "<think>" not in message.content and "</think>" not in message.content
    parts = gather(chat("Who are you?", stream=True, extra_body={"chat_template_kwargs": {"enable_thinking": True}}))
    assert parts["text"] == message.content
    assert parts["thinking"] == (getattr(message, "reasoning_content", None) or "")


@case
def thinking_is_off_by_effort():
    message = chat("Who are you?", extra_body={}, reasoning_effort="none").choices[0].message
    assert not getattr(message, "reasoning_content", None) and message.content


@case
def a_thinking_budget_ends_it():
    budget = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 3}
    answer = chat("Who are you?", extra_body=budget)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens_details.reasoning_tokens <= 12


@case
def a_call():
    choice = chat(ONE_CITY, tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "get_weather" and call.id
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    assert not choice.message.content


@case
def parallel_calls():
    calls = chat(TWO_CITIES, tools=[TOOL]).choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Rome", "Oslo"]
    assert len({call.id for call in calls}) == 2


@case
def streamed_calls_are_the_same():
    parts = gather(chat(TWO_CITIES, tools=[TOOL], stream=True))
    assert parts["reasons"] == ["tool_calls"]
    assert [json.loads(call["arguments"]) for call in parts["calls"]] == [{"city": "Rome"}, {"city": "Oslo"}]
    assert {call["name"] for call in parts["calls"]} == {"get_weather"}
    assert len({call["id"] for call in parts["calls"]}) == 2


@case
def parallel_calls_can_be_forbidden():
    calls = chat(TWO_CITIES, tools=[TOOL], parallel_tool_calls=False).choices[0].message.tool_calls
    assert len(calls) == 1


@case
def the_result_of_a_call_is_answered():
    first = chat(ONE_CITY, tools=[TOOL]).choices[0].message
    messages = [{"role": "user", "content": ONE_CITY}, first.model_dump(exclude_none=True)]
    messages.append({"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": '{"temperature": 21}'})
    answer = chat(messages=messages, tools=[TOOL])
    assert answer.choices[0].message.content and answer.usage.prompt_tokens_details.cached_tokens > 0


@case
def a_call_is_required():
    choice = chat("Hello!", tools=[TOOL], tool_choice="required").choices[0]
    assert choice.message.tool_calls[0].function.name == "get_weather"
    assert isinstance(json.loads(choice.message.tool_calls[0].function.arguments)["city"], str)


@case
def a_named_call():
    other = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
    named = {"type": "function", "function": {"name": "get_time"}}
    choice = chat(ONE_CITY, tools=[TOOL, other], tool_choice=named).choices[0]
    assert choice.message.tool_calls[0].function.name == "get_time"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {}


@case
def no_call():
    choice = chat(ONE_CITY, tools=[TOOL], tool_choice="none").choices[0]
    assert not choice.message.tool_calls and choice.finish_reason in ("stop", "length")


@case
def a_strict_tool():
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    [call] = chat(ONE_CITY, tools=[strict]).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Rome"}


@case
def odd_tools_are_accepted():
    tools = [
        {"type": "function", "function": function}
        for function in [
            {"name": "a"},
            {"name": "b", "parameters": {}},
            {"name": "c", "description": None, "parameters": {"type": "object", "properties": {"x": {}}}},
            {
                "name": "d",
                "parameters": {
                    "$defs": {"t": {"type": "string"}},
                    "type": "object",
                    "properties": {"x": {"$ref": "#/$defs/t"}},
                },
            },
        ]
    ]
    assert chat("Hello!", tools=tools).choices[0].finish_reason in ("stop", "tool_calls", "length")


@case
def eighty_tools():
    tools = [{"type": "function", "function": {"name": f"tool_{i}"}} for i in range(80)]
    assert chat("Hello!", tools=tools, max_tokens=5).usage.prompt_tokens > 80 * 10


@case
def a_json_schema():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    person = json.loads(chat("Describe Tom.", response_format=form).choices[0].message.content)
    assert set(person) == {"name", "age", "mood"} and person["mood"] in ("happy", "sad") and 0 <= person["age"] <= 150


@case
def a_json_schema_with_thinking():
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    extra = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 40}
    message = chat("Describe Tom.", response_format=form, extra_body=extra, max_tokens=400).choices[0].message
    assert set(json.loads(message.content)) == {"name", "age", "mood"}


@case
def a_json_object():
    # So small a model finds no end of a text unless words that it has said cost something.
    answer = chat("Describe Tom.", response_format={"type": "json_object"}, frequency_penalty=2, max_tokens=1000)
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


@case
def a_schema_through_the_parse_helper():
    from pydantic import BaseModel

    class Point(BaseModel):
        x: int
        y: int

    answer = client.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "A point."}],
        response_format=Point,
        temperature=0,
        max_tokens=100,
        extra_body=OFF,
    )
    assert isinstance(answer.choices[0].message.parsed, Point)


@case
def the_stream_helper():
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": TWO_CITIES}], tools=[TOOL], temperature=0, extra_body=OFF
    ) as stream:
        kinds = [event.type for event in stream]
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert "tool_calls.function.arguments.done" in kinds
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Rome", "Oslo"]


@case
def a_bad_schema_is_refused():
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
    raises(openai.BadRequestError, lambda: chat(response_format=form))


@case
def max_tokens_ends_it():
    answer = chat(max_tokens=3)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_completion_tokens=2, temperature=0, extra_body=OFF
    )
    assert answer.usage.completion_tokens == 2


@case
def a_call_that_is_cut_is_not_complete():
    choice = chat(ONE_CITY, tools=[TOOL], max_tokens=8).choices[0]
    assert choice.finish_reason == "length"
    for call in choice.message.tool_calls or []:
        json.loads(call.function.arguments)


@case
def stop_texts():
    whole = chat().choices[0].message.content
    word = whole.split()[1]
    for stop in (word, [word, "never"]):
        answer = chat(stop=stop).choices[0]
        assert answer.message.content == whole[: whole.index(word)] and answer.finish_reason == "stop"
        assert gather(chat(stop=stop, stream=True))["text"] == answer.message.content


@case
def a_seed_repeats():
    texts = {chat("Tell me something.", temperature=1, seed=7).choices[0].message.content for _ in range(3)}
    assert len(texts) == 1
    others = {chat("Tell me something.", temperature=1, seed=seed).choices[0].message.content for seed in range(4)}
    assert len(others) > 1


@case
def several_choices():
    answer = chat("Tell me something.", n=3, temperature=1, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    seen = set()
    for chunk in chat("Tell me something.", n=2, temperature=1, stream=True):
        seen |= {choice.index for choice in chunk.choices}
    assert seen == {0, 1}


@case
def log_probabilities():
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=5).choices[0]
    tokens = answer.logprobs.content
    assert len(tokens) == 5
    assert "".join(token.token for token in tokens) == answer.message.content
    for token in tokens:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        assert bytes(token.bytes).decode(errors="replace") == token.token


@case
def streamed_log_probabilities():
    tokens = []
    for chunk in chat(logprobs=True, top_logprobs=2, max_tokens=5, stream=True):
        for choice in chunk.choices:
            tokens += choice.logprobs.content if choice.logprobs else []
    assert len(tokens) == 5 and all(len(token.top_logprobs) == 2 for token in tokens)


@case
def a_bias_forbids_a_token():
    text = chat(max_tokens=1).choices[0].message.content
    request = urllib.request.Request(
        f"{URL}/tokenize", json.dumps({"content": text}).encode(), {"Content-Type": "application/json"}
    )
    tokens = json.load(urllib.request.urlopen(request))["tokens"]
    other = chat(max_tokens=1, logit_bias={str(tokens[0]): -100}).choices[0].message.content
    assert other != text


@case
def penalties_and_more_sampling():
    extra = {**OFF, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}
    answer = chat(temperature=0.7, top_p=0.8, presence_penalty=1.5, frequency_penalty=0.5, seed=1, extra_body=extra)
    assert answer.choices[0].message.content


@case
def the_assistants_message_is_continued():
    messages = [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am the Flash"}]
    text = chat(messages=messages, max_tokens=10).choices[0].message.content
    assert not text.startswith("I am the Flash") and text


@case
def what_agents_send():
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    histories = [
        [{"role": "developer", "content": "Be short."}, *HELLO],
        [*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "system", "content": "Be short."}, *HELLO],
        [
            {"role": "system", "content": "S"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ],
        [
            *HELLO,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
        ],
        [
            *HELLO,
            {"role": "assistant", "tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]},
            {"role": "tool", "tool_call_id": "c1", "content": []},
        ],
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]}],
    ]
    for messages in histories:
        assert chat(messages=messages, tools=[TOOL], max_tokens=20).choices[0].finish_reason


@case
def a_picture_is_refused():
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    raises(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": [part]}]), "image")


@case
def bad_values_are_refused():
    for options in (
        {"temperature": -1},
        {"top_p": 2},
        {"n": 0},
        {"presence_penalty": 9},
        {"top_logprobs": 500, "logprobs": True},
    ):
        raises(openai.BadRequestError, lambda options=options: chat(**options))
    raises(openai.BadRequestError, lambda: chat(messages=[]))
    raises(openai.BadRequestError, lambda: chat(messages=[{"role": "wizard", "content": "x"}]), "wizard")


@case
def too_long_a_prompt_is_refused():
    error = raises(openai.BadRequestError, lambda: chat("word " * 200_000), "context")
    assert error.code == "context_length_exceeded"


@case
def a_dropped_stream_ends_the_work():
    for _ in range(5):
        stream = chat("Tell me a long story.", stream=True, max_tokens=2000)
        next(iter(stream))
        stream.close()
    assert chat().choices[0].message.content


@case
def several_at_once():
    expected, results = chat().choices[0].message.content, []
    threads = [threading.Thread(target=lambda: results.append(chat().choices[0].message.content)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results == [expected] * 8, results


@case
def completions():
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=10, temperature=0)
    assert answer.object == "text_completion" and answer.choices[0].text and answer.usage.completion_tokens == 10
    text = "".join(
        chunk.choices[0].text
        for chunk in client.completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=10, temperature=0, stream=True
        )
        if chunk.choices
    )
    assert text == answer.choices[0].text
    assert len(client.completions.create(model=MODEL, prompt=["Once", "Twice"], max_tokens=3).choices) == 2


@case
def embeddings_are_refused():
    raises(
        openai.APIStatusError,
        lambda: client.embeddings.create(model=MODEL, input="x", encoding_format="float"),
        "embedding",
    )


@case
def a_response():
    response = client.responses.create(
        model=MODEL,
        input="Hello!",
        instructions="Be short.",
        temperature=0,
        max_output_tokens=100,
        reasoning={"effort": "none"},
    )
    assert response.status == "completed" and response.output_text and response.usage.output_tokens > 0


@case
def a_streamed_response():
    kinds, text = [], ""
    for event in client.responses.create(
        model=MODEL, input="Hello!", temperature=0, stream=True, reasoning={"effort": "none"}
    ):
        kinds.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and text
    assert "response.output_item.added" in kinds and "response.output_item.done" in kinds


@case
def a_response_with_a_call():
    tools = [{"type": "function", "name": "get_weather", "parameters": WEATHER}, {"type": "web_search"}]
    response = client.responses.create(
        model=MODEL, input=ONE_CITY, tools=tools, temperature=0, reasoning={"effort": "none"}
    )
    [call] = [item for item in response.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Rome"}
    items = [
        {"role": "user", "content": ONE_CITY},
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    assert client.responses.create(
        model=MODEL, input=items, tools=tools, temperature=0, reasoning={"effort": "none"}
    ).output_text


@case
def a_response_with_a_schema():
    form = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    response = client.responses.create(
        model=MODEL, input="Describe Tom.", text=form, temperature=0, reasoning={"effort": "none"}
    )
    assert set(json.loads(response.output_text)) == {"name", "age", "mood"}


@case
def a_response_that_is_cut():
    response = client.responses.create(
        model=MODEL, input="Hello!", max_output_tokens=2, temperature=0, reasoning={"effort": "none"}
    )
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"


main("openai (Python)")
