"""Whole conversations for training, and the single-turn cases of heldout_tools.jsonl."""

import json
import re

import words
from questions import Questions
from tools import Tools

CANNOT = [
    "Sorry, I cannot do that here.",
    "I am sorry, that is not something I can do.",
    "I can't help with that here, sorry.",
]
ERRORS = ["not found", "permission denied", "timeout", "invalid value", "service unavailable"]
DRILL_KINDS = [*words.PARAMETERS_OF_KIND, "sentence", "phrase", "title", "code", "person", "path", "shell"]
QUOTED_IN_LISTS = ("phrase", "sentence", "shell", "expr", "path")


def user(text):
    return {"role": "user", "content": text}


def assistant(text, reasoning=""):
    return {"role": "assistant", "content": text, "reasoning_content": reasoning}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def spoken_name(parameter):
    """A parameter's name as one would say it: words in lower case."""
    if parameter.spoken:
        return parameter.spoken
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", parameter.name)
    return apart.replace("_", " ").replace("-", " ").lower()


class Generator(Tools, Questions):
    """Draws conversations."""

    # ---------------------------------------------------------------- calls, results and answers
    def call_reasoning(self, calls):
        if len(calls) == 1:
            tool, arguments = calls[0]
            given = ", ".join(arguments) or "no arguments"
            thoughts = [
                f"The user wants me to use {tool.name}. Arguments: {given}.",
                f"{tool.name} fits this request. I have {given}.",
                f"I should call {tool.name} with {given}.",
                f"This needs {tool.name}. Given: {given}.",
            ]
            return self.pick(thoughts)
        count = len(calls)
        starts = [
            f"I need {count} calls: ",
            f"There are {count} things to do: ",
            f"{count} function calls are needed: ",
        ]
        return self.pick(starts) + "; ".join(f"{tool.name}({', '.join(arguments)})" for tool, arguments in calls) + "."

    def call_message(self, calls, think):
        message = assistant(self.pick(["", "", "", "", "Let me do that.", "One moment.", "Sure."]))
        message["tool_calls"] = [call(tool.name, arguments) for tool, arguments in calls]
        message["reasoning_content"] = self.call_reasoning(calls) if think else ""
        return message

    def result(self, tool, arguments):
        """-> (what the tool returns, what the assistant says about it)"""
        if self.chance(0.06):
            error = self.pick(ERRORS)
            answers = [
                f"That did not work: {error}.",
                f"The call failed: {error}.",
                f"Sorry, there was an error: {error}.",
            ]
            return json.dumps({"error": error}), self.pick(answers)
        result, answer = (self.archetype_result if tool.archetype else self.generated_result)(tool, arguments)
        if self.chance(0.85):
            return json.dumps(result, ensure_ascii=False), answer.strip()
        return "\n".join(f"{key}: {value}" for key, value in result.items()), answer.strip()

    def archetype_result(self, tool, arguments):
        result = {name: self.value(kind) for name, kind in tool.archetype.results}
        shown = dict(result)
        for slot, parameter in tool.slots.items():
            if parameter.name in arguments:
                shown.setdefault(slot, arguments[parameter.name])
        answers = [a for a in tool.archetype.answers if all(k in shown for k in re.findall(r"\{(\w+)", a))]
        if not answers:
            return result, "Done."

        def text(match):
            value = shown[match.group(1)]
            if isinstance(value, str):
                return value
            return ", ".join(map(str, value)) if isinstance(value, list) else json.dumps(value)

        return result, re.sub(r"\{(\w+)(?::q)?\}", text, self.pick(answers))

    def generated_result(self, tool, _):
        result = {self.pick(["status", "result"]): self.pick(["ok", "success", "done"])}
        if self.chance(0.7):
            number = self.rng.randint(1, 9999)
            result[self.pick(["id", "count", "total", "number"])] = number
        if self.chance(0.4):
            value = self.value(self.pick(["person", "phrase", "city"]))
            result[self.pick(["name", "owner", "message", "place"])] = value
        start = self.pick([f"Done: {tool.action}. ", "Done. ", "All set. "])
        return result, start + " ".join(f"The {key} is {value}." for key, value in list(result.items())[1:])

    # ---------------------------------------------------------------- several calls
    def parallel(self, count):
        """A request for several calls -> (needed tools, text, calls)"""
        if self.chance(0.35):
            tool = self.archetype_tool()
            for _ in range(30):
                if tool.archetype.list_requests:
                    break
                tool = self.archetype_tool()
            if tool.archetype.list_requests:
                return self.list_request(tool, count)
        return self.joined_requests(count)

    def list_request(self, tool, count):
        """One sentence with a list of values, one call for each."""
        pattern = self.pick(tool.archetype.list_requests)
        (slot,) = re.findall(r"\{(\w+)\*\}", pattern)
        parameter = tool.slots[slot]
        values = []
        while len(values) < count:
            value = self.value(parameter.kind)
            if value not in values:
                values.append(value)
        said = [self.say(value) for value in values]
        if self.chance(0.8):
            text = ", ".join(said[:-1]) + self.pick([" and ", ", and ", " and also "]) + said[-1]
        else:
            text = ", ".join(said)
        if parameter.kind in QUOTED_IN_LISTS or any("," in part or " and " in part for part in said):
            quoted = [f'"{value}"' if '"' not in str(value) else f"`{value}`" for value in values]
            text = ", ".join(quoted[:-1]) + " and " + quoted[-1]
        return [tool], pattern.replace(f"{{{slot}*}}", text), [(tool, {parameter.name: value}) for value in values]

    def joined_requests(self, count):
        """Several requests in one message, for one tool or for different ones."""
        same = self.chance(0.45)
        first = self.tool()
        tools, calls, texts = [first], [], []
        for i in range(count):
            tool = first if same or i == 0 else self.tool()
            if tool is not first and self.clashes(tool, tools):
                tool = first
            if not any(tool is t for t in tools):
                tools.append(tool)
            text, arguments = self.request(tool)
            calls.append((tool, arguments))
            texts.append(text)
        return tools, self.join(texts), calls

    def clashes(self, tool, tools):
        """Whether a tool has the name of another, or the archetype of the first."""
        same_archetype = tool.archetype is not None and tool.archetype is tools[0].archetype
        return same_archetype or tool.name in [t.name for t in tools]

    def join(self, texts):
        style = self.pick([0, 1, 2, 3, 4] if not self.held_tools else [1, 2])
        if style == 0:
            return self.pick([" Also: ", " Then: ", "\n\nAnd: ", "\nAlso, ", " And then "]).join(texts)
        if style == 1:
            return "\n".join(f"{i + 1}. {text}" for i, text in enumerate(texts))
        if style == 2:
            if self.held_tools:
                return "Here is my list.\n" + "\n".join(texts)
            return f"{self.pick(['Two', 'A few', 'Some'])} things. " + "\n".join(texts)
        if style == 3:
            return "\n\n".join(texts)
        for _ in texts:
            self.pick("abcd")  # unused; keeps the sequence of draws
        return " ".join(texts)

    # ---------------------------------------------------------------- training conversations with tools
    def system(self):
        return [{"role": "system", "content": self.pick(words.SYSTEM_PROMPTS)}] if self.chance(0.3) else []

    def dialogue(self):
        """A conversation of one to seven turns with tools -> (messages, tools)"""
        while True:
            conversation = self.try_dialogue()
            if conversation:
                return conversation

    def try_dialogue(self):
        """A dialogue, or None if its tools clash or are too many."""
        messages = self.system()
        think = self.chance(0.4)
        plan, needed = self.plan(self.pick([1, 1, 2, 2, 3, 4, 5, 7]))
        names = {tool.name for tool in needed}
        if len(names) < len(needed):
            return None
        tools = self.with_others(needed, self.pick([0, 0, 0, 1, 1, 2, 3] if needed else [1, 2, 3]))
        if len(tools) > 7:
            return None
        for i, (kind, *details) in enumerate(plan):
            if kind == "question":
                messages += self.question_turn(details, think)
            elif kind == "impossible":
                messages += self.impossible_turn(names, tools, think)
            elif kind == "incomplete":
                messages += self.incomplete_turn(details, think)
            else:
                if kind == "single":
                    text, arguments = self.request(details[0])
                    calls = [(details[0], arguments)]
                else:
                    text, calls = details
                messages += self.call_turn(text, calls, think, last=i == len(plan) - 1)
        if not any(message["role"] == "user" for message in messages):
            return None
        return messages, [tool.schema for tool in tools]

    def plan(self, turns):
        """What each turn is about -> (plan, needed tools)"""
        plan, needed = [], []

        def need(tools):
            for tool in tools:
                if not any(tool is t for t in needed):
                    needed.append(tool)

        for _ in range(turns):
            kind = self.rng.random()
            if kind < 0.52:
                tool = self.pick(needed) if needed and self.chance(0.65) else self.tool()
                plan.append(("single", tool))
                need([tool])
            elif kind < 0.78:
                tools, text, calls = self.parallel(self.pick([2, 2, 2, 3, 3]))
                plan.append(("parallel", text, calls))
                need(tools)
            elif kind < 0.88:
                tool, text, parameter = self.incomplete_request()
                plan.append(("incomplete", tool, text, parameter))
                need([tool])
            elif kind < 0.99:
                plan.append(("question", *self.question()))
            else:
                plan.append(("impossible",))
        return plan, needed

    def question_turn(self, details, think):
        question, reasoning, answer = details
        if think:
            reasoning = self.pick(["No function is needed. ", ""]) + reasoning
        return [user(question), assistant(answer, reasoning if think else "")]

    def impossible_turn(self, names, tools, think):
        """A request that none of the tools can serve."""
        other = self.archetype_tool()
        if other.name in names or any(tool.archetype is other.archetype for tool in tools):
            return []
        text, _ = self.request(other)
        return [user(text), assistant(self.pick(CANNOT), "None of the functions can do this." if think else "")]

    def incomplete_turn(self, details, think):
        tool, text, parameter = details
        name = spoken_name(parameter)
        questions = [
            f"What {name} should I use?",
            f"Which {name} should I use?",
            f"Could you tell me the {name}?",
            f"I still need the {name}. What is it?",
        ]
        question, reasoning = self.pick(questions), ""
        if think:
            thoughts = [
                f"{tool.name} needs the {name}, which is missing. I should ask.",
                f"The required {name} is not given, so I ask for it.",
            ]
            reasoning = self.pick(thoughts)
        return [user(text), assistant(question, reasoning)]

    def call_turn(self, text, calls, think, last):
        messages = [user(text), self.call_message(calls, think)]
        if not self.chance(0.55 if not last else 0.3):
            return messages
        answers = []
        for tool, arguments in calls:
            result, answer = self.result(tool, arguments)
            messages.append({"role": "tool", "content": result})
            answers.append(answer)
        thoughts = ["I have the result and can answer.", "The function returned a result. I report it."]
        messages.append(assistant(" ".join(answers), self.pick(thoughts) if think else ""))
        return messages

    # ---------------------------------------------------------------- training conversations without tools
    def chat(self):
        """Small talk, or a few plain questions -> (messages, None)"""
        kind = self.rng.random()
        think = self.chance(0.4)
        if kind < 0.3:
            turns = self.pick(self.bank.chitchat)
            start = self.rng.randrange(max(1, len(turns) - 5))
            turns = turns[start : start + self.rng.randint(2, 8)]
            return self.system() + alternate(turns), None
        if kind < 0.36 and not self.held_values:
            return alternate(self.pick(self.bank.chatterbot)), None
        messages = self.system()
        for _ in range(self.pick([1, 1, 2, 3])):
            question, reasoning, answer = self.question()
            messages += [user(question), assistant(answer, reasoning if think else "")]
        return messages, None

    def drill(self):
        """Copy and look-up exercises with every kind of value -> (messages, None)"""
        messages = []
        while not messages:
            for _ in range(self.rng.randint(2, 7)):
                messages += self.copy_drill() if self.chance(0.45) else self.look_up_drill()
        return messages, None

    def copy_drill(self):
        value = str(self.value(self.pick(DRILL_KINDS)))
        said = self.say(value, "", self.pick(["q", "q", "b", ""]))
        order = self.pick(["Repeat exactly: ", "Copy this: ", "Say: ", "Echo ", "Write only this: "])
        return [user(order + said.strip()), assistant(value.strip())]

    def look_up_drill(self):
        """A question about one of several named values; nothing if a name is used twice."""
        kinds = self.rng.sample(list(words.PARAMETERS_OF_KIND), self.rng.randint(2, 5))
        entries = [(self.pick(words.PARAMETERS_OF_KIND[kind].split()), self.value(kind), kind) for kind in kinds]
        if len({name for name, _, _ in entries}) < len(entries):
            return []
        pattern = self.pick(["{p}: {v}", "{p} = {v}", "the {p} is {v}", "{p} {v}"])
        name, value, _ = self.pick(entries)
        separator = self.pick(["\n", "; ", ", "])
        parts = []
        for other, other_value, kind in entries:
            style = "q" if kind in ("sentence", "phrase", "shell", "json") else ""
            part = pattern.replace("{p}", other.replace("_", " "))
            parts.append(part.replace("{v}", self.say(other_value, kind, style)))
        text, asked = separator.join(parts), name.replace("_", " ")
        questions = [
            f"{text}\nWhat is the {asked}?",
            f"Given {text}. Tell me the {asked}.",
            f"What is the {asked} here? {text}",
        ]
        return [user(self.pick(questions)), assistant(str(value))]

    # ---------------------------------------------------------------- samples of other data sets
    def sample(self):
        """A conversation of the glaive or reasoning tool samples; a generated one if it cannot be read."""
        try:
            return self.glaive_sample() if self.chance(0.8) else self.reasoning_sample()
        except (KeyError, TypeError, ValueError):
            return self.dialogue()

    def glaive_sample(self):
        sample = self.pick(self.bank.tool_samples)
        tools = None
        if sample.get("tools"):
            tools = [{"type": "function", "function": tool} for tool in json.loads(sample["tools"])]
        messages = []
        for turn in sample["conversations"]:
            speaker, text = turn["from"], turn["value"]
            if speaker == "human":
                messages.append(user(text))
            elif speaker == "gpt":
                messages.append(assistant(text))
            elif speaker == "observation":
                messages.append({"role": "tool", "content": text})
            elif speaker == "function_call":
                calls = json.loads(text)
                calls = calls if isinstance(calls, list) else [calls]
                message = assistant("")
                message["tool_calls"] = [call(c["name"], c["arguments"]) for c in calls]
                messages.append(message)
        return messages, tools

    def reasoning_sample(self):
        sample = self.pick(self.bank.reasoning_samples)
        messages = []
        for turn in sample["messages"]:
            message = {"role": turn["role"], "content": ""}
            for part in turn["content"]:
                if part["type"] == "text":
                    message["content"] += part["value"]
                elif part["type"] == "reasoning":
                    message["reasoning_content"] = part["value"][:600]
                elif part["type"] == "tool_call":
                    made = json.loads(part["value"])
                    message.setdefault("tool_calls", []).append(call(made["name"], made["arguments"]))
            messages.append(message)
        return messages, json.loads(sample["tools"])

    # ---------------------------------------------------------------- held-out cases
    def case(self, kind):
        """A single-turn case: single, select (one of several tools), parallel, missing or notool."""
        think = self.chance(0.5)
        while True:
            extra = {}
            if kind in ("single", "select"):
                tool = self.tool()
                text, arguments = self.request(tool)
                calls = [(tool, arguments)]
                tools = [tool] if kind == "single" else self.with_others([tool], self.rng.randint(2, 4))
                if kind == "select" and len(tools) < 3:
                    continue
            elif kind == "parallel":
                needed, text, calls = self.parallel(self.pick([2, 2, 3]))
                tools = self.with_others(needed, self.pick([0, 1, 2]))
            elif kind == "missing":
                tool, text, parameter = self.incomplete_request()
                calls, extra = [], {"missing": parameter.name}
                tools = self.with_others([tool], self.pick([0, 1, 2]))
            else:
                text, calls = self.question()[0], []
                tools = self.with_others([], self.rng.randint(1, 3))
            if tools and len({tool.name for tool in tools}) == len(tools):
                break
        return {
            "kind": kind,
            "think": think,
            **extra,
            "messages": [user(text)],
            "tools": [tool.schema for tool in tools],
            "expected": [{"name": tool.name, "arguments": arguments} for tool, arguments in calls],
        }


def alternate(turns):
    """Messages from the turns of two speakers, ending with the assistant."""
    turns = turns[: len(turns) // 2 * 2]
    return [user(text) if i % 2 == 0 else assistant(text) for i, text in enumerate(turns)]
