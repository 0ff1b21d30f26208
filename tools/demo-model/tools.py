"""Random tools (their JSON schemas) and requests that call them.

A tool comes from a hand-written archetype (toolbank.txt) or is generated: a verb, a noun and random parameters.
"""

import json
import re
from dataclasses import dataclass

import phrasing
import words
from bank import Archetype, checksum
from values import Values

JSON_TYPES = {
    "int": "integer",
    "num": "number",
    "bool": "boolean",
    "arr": "array",
    "arrint": "array",
    "arrnum": "array",
    "obj": "object",
}
ITEM_TYPES = {"arr": "string", "arrint": "integer", "arrnum": "number"}
USUALLY_QUOTED = ("sentence", "phrase", "md", "json", "shell", "regex", "title", "file", "coords", "expr")
QUOTED_IN_MENTIONS = ("phrase", "sentence", "title", "shell", "regex")
INTEGER_KINDS = ["int(0,20)", "int(1,100)", "int(0,5000)", "int(1,999999)", "int(-50,50)"]
NUMBER_KINDS = ["num(0,1)", "num(0,100)", "num(-90,90)", "num(1,5000)"]
ARRAY_KINDS = ["arr(word)", "arr(person)", "arr(phrase)", "arr(city)", "arr(file)"]
PREFIXES = ["new", "target", "max", "default", "primary", "start", "final"]


@dataclass
class Parameter:
    name: str  # as in the schema
    kind: str
    required: bool
    description: str
    spoken: str = ""  # as a user would say it; only for generated tools

    @property
    def base_kind(self):
        return self.kind.split("(")[0]


@dataclass
class Tool:
    name: str
    schema: dict
    parameters: list
    action: str  # what it does, for answers
    archetype: Archetype = None
    slots: dict = None  # archetypes: name of a slot in the patterns -> Parameter
    actions: list = None  # generated tools: ways to say what it does

    def in_order(self, values):
        """The arguments in the order of the schema."""
        return {p.name: values[p.name] for p in self.parameters if p.name in values}


def capitalised(text):
    return text[0].upper() + text[1:]


class Tools(Values):
    """Draws tools and requests.  `held_tools`: only archetypes, names and request frames that training never sees."""

    naming = 0.0  # decides the naming style of the tool being made: snake_case, camelCase, PascalCase or kebab-case

    def __init__(self, bank, rng, held_tools=False, held_values=False, inventive=False):
        super().__init__(bank, rng, held_values, inventive)
        self.held_tools = held_tools

    # ---------------------------------------------------------------- schemas
    def schema(self, kind, description):
        """The JSON schema of one parameter."""
        base = kind.split("(")[0]
        argument = kind[len(base) + 1 : -1]
        json_type = JSON_TYPES.get(base, "string")
        schema = {"type": json_type}
        if description and self.chance(0.85):
            type_first = self.chance(0.8)
            schema = {"type": json_type, "description": description}
            if not type_first:
                schema = {"description": description, "type": json_type}
        if base == "enum":
            schema["enum"] = argument.split(",")
        if base in ITEM_TYPES:
            schema["items"] = {"type": ITEM_TYPES[base]}
        if base == "int" and self.chance(0.15):
            schema["minimum"], schema["maximum"] = map(int, argument.split(","))
        return schema

    def styled(self, name):
        """A snake_case name in the naming style of this tool."""
        self.rng.random()  # unused; keeps the sequence of draws
        if self.naming < 0.75:
            return name
        parts = name.split("_")
        if self.naming < 0.9:
            return parts[0] + "".join(part.capitalize() for part in parts[1:])
        if self.naming > 0.96 and "_" in name:
            return name.replace("_", "-")
        return "".join(part.capitalize() for part in parts)

    def function_schema(self, name, description, parameters):
        properties = {p.name: self.schema(p.kind, p.description) for p in parameters}
        schema = {"type": "object", "properties": properties}
        required = [p.name for p in parameters if p.required]
        if required or self.chance(0.6):
            schema["required"] = required
        return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

    # ---------------------------------------------------------------- tools from archetypes
    def archetype_tool(self):
        """A hand-written tool with names drawn from its variants, and some optional parameters left out."""
        archetype = self.pick(self.bank.archetypes[self.held_tools])
        self.naming = self.rng.random()
        chosen = [self.pick(names) if self.chance(0.6) else names[0] for names, *_ in archetype.parameters]
        if len(set(chosen)) < len(chosen):
            chosen = [names[0] for names, *_ in archetype.parameters]
        parameters = [
            Parameter(self.styled(name), kind, required, description)
            for name, (_, kind, required, description) in zip(chosen, archetype.parameters)
        ]
        kept = list(range(len(parameters)))
        if self.chance(0.25):
            kept = [i for i, p in enumerate(parameters) if p.required or self.chance(0.5)]
        name = self.styled(self.pick(archetype.names) if self.chance(0.8) else archetype.names[0])
        schema = self.function_schema(name, self.pick(archetype.descriptions), [parameters[i] for i in kept])
        slots = {archetype.parameters[i][0][0]: parameters[i] for i in kept}
        return Tool(name, schema, [parameters[i] for i in kept], archetype.descriptions[0], archetype, slots)

    def fill(self, pattern, tool):
        """Fill a request pattern of an archetype -> (text, values by parameter name)."""
        values, decided = {}, set()
        outside = re.findall(r"#(\w+)=(\w+)", re.sub(r"\[[^\]]*\]", "", pattern))

        def optional_part(match):
            part = match.group(1)
            flags = re.findall(r"#(\w+)=(\w+)", part)
            part = re.sub(r"#\w+=\w+", "", part)
            slots = re.findall(r"\{(\w+)", part) + [name for name, _ in flags]
            if any(name not in tool.slots for name in slots) or self.chance(0.5):
                return ""
            if any(name in decided for name, _ in flags):
                return ""
            for name, value in flags:
                decided.add(name)
                values[tool.slots[name].name] = value == "true"
            return part

        def slot(match):
            parameter = tool.slots[match.group(1)]
            if parameter.name not in values:
                values[parameter.name] = self.value(parameter.kind)
            return self.say(values[parameter.name], parameter.base_kind, match.group(2) or "")

        text = re.sub(r"\[((?:[^\]\[])*)\]", optional_part, pattern)
        for name, value in outside:
            values[tool.slots[name].name] = value == "true"
        text = re.sub(r"#\w+=\w+", "", text)
        return re.sub(r"\{(\w+)(?::(\w))?\}", slot, text).strip(), values

    def archetype_request(self, tool):
        text, values = self.fill(self.pick(tool.archetype.requests), tool)
        style = self.rng.random()
        if self.inventive and self.chance(0.15):
            if self.chance(0.5):
                return self.pick(phrasing.OPENINGS) + text, tool.in_order(values)
            if "\n" not in text:
                return text + self.pick(phrasing.CLOSINGS), tool.in_order(values)
        if not self.held_tools:
            if style < 0.06:
                text = text[0].lower() + text[1:]
            elif style < 0.1:
                text = "Please help: " + text
            elif style < 0.13:
                text = self.pick(["Hi, ", "Hello! ", "Hey, "]) + text
            elif style < 0.16 and "\n" not in text:
                text += self.pick([" Thanks!", " Thank you.", " It is important."])
        return text, tool.in_order(values)

    # ---------------------------------------------------------------- generated tools
    def generated_tool(self):
        """A tool with a random name and random parameters."""
        self.naming = self.rng.random()
        verb, noun, adjective = self.function_words()
        subject = f"{adjective} {noun}".strip()
        parameters = []
        for _ in range(self.pick([1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6])):
            parameter = self.generated_parameter(noun, subject, {p.spoken for p in parameters})
            if parameter:
                parameters.append(parameter)
        if not any(p.required for p in parameters):
            parameters[0].required = True
        articles = ("the", "an" if subject[0] in "aeiou" else "a")
        says = words.VERBS[verb].split("|")
        actions = [f"{say} {article} {subject}" for say in says for article in articles]
        name = self.styled("_".join(part for part in (verb, adjective, noun) if part))
        descriptions = [
            f"{verb.capitalize()} a {subject}",
            f"{verb.capitalize()}s the {subject}",
            f"Use this to {verb} a {subject}.",
            f"{verb.capitalize()} {subject} data",
            f"{says[-1].capitalize()} a {subject} in the system",
        ]
        schema = self.function_schema(name, self.pick(descriptions), parameters)
        return Tool(name, schema, parameters, f"{verb} the {subject}", actions=actions)

    def function_words(self):
        """-> verb, noun, adjective or ''; function names whose checksum is divisible by 8 are held out."""
        while True:
            verb = self.pick(list(words.VERBS))
            noun = self.pick(words.NOUNS) if self.chance(0.8) else self.word()
            adjective = self.pick(words.ADJECTIVES) if self.chance(0.2) else ""
            name = "_".join(part for part in (verb, adjective, noun) if part)
            if (checksum(name) % 8 == 0) == self.held_tools:
                return verb, noun, adjective

    def parameter_kind(self):
        """-> (parameter name, kind)"""
        style = self.rng.random()
        if style < 0.55:
            kind = self.pick(list(words.PARAMETERS_OF_KIND))
            return self.pick(words.PARAMETERS_OF_KIND[kind].split()), kind
        if style < 0.68:
            return self.pick(words.INTEGER_PARAMETERS), self.pick(INTEGER_KINDS)
        if style < 0.75:
            return self.pick(words.NUMBER_PARAMETERS), self.pick(NUMBER_KINDS)
        if style < 0.82:
            return self.pick(words.BOOLEAN_PARAMETERS), "bool"
        if style < 0.89:
            name = self.pick(list(words.ENUMS))
            return name, f"enum({words.ENUMS[name].replace(' ', ',')})"
        if style < 0.94:
            return self.pick(words.ARRAY_PARAMETERS), self.pick(ARRAY_KINDS)
        if style < 0.97:
            return self.pick(words.NUMBER_ARRAY_PARAMETERS), self.pick(["arrint", "arrint", "arrnum"])
        return self.pick(words.OBJECT_PARAMETERS), "obj(a,b)"

    def generated_parameter(self, noun, subject, taken):
        """A random parameter, or None if its name is taken."""
        name, kind = self.parameter_kind()
        style = self.rng.random()
        if style < 0.2 and "_" not in name:
            name = f"{noun if re.fullmatch('[a-z]+', noun) else 'item'}_{name}"
        elif style < 0.3 and "_" not in name:
            name = f"{self.pick(PREFIXES)}_{name}"
        elif style < 0.36:
            name = self.word() if kind in words.PARAMETERS_OF_KIND or style < 0.33 else name
        spoken = name.replace("_", " ")
        if spoken in taken:
            return None
        descriptions = [
            f"The {spoken} of the {noun}",
            f"{spoken.capitalize()} of the {subject}",
            spoken.capitalize(),
            f"The {spoken} to use",
            f"Which {spoken}",
        ]
        description = self.pick(descriptions)
        if kind == "date":
            description += " (YYYY-MM-DD)"
        return Parameter(self.styled(name), kind, self.chance(0.65), description, spoken)

    # ---------------------------------------------------------------- requests for generated tools
    def generated_request(self, tool, without=None):
        """A request with random values, lacking the parameter `without` -> (text, arguments)."""
        values = {}
        for p in tool.parameters:
            if p is not without and (p.required or self.chance(0.5)):
                values[p.name] = self.value(p.kind)
        given = [p for p in tool.parameters if p.name in values]
        if self.chance(0.4):
            mentioned = given[:]
            self.rng.shuffle(mentioned)
        else:
            mentioned = given
        action = self.pick(tool.actions)
        frame = self.frame(values, len(given))
        parts = self.frame_parts(frame, mentioned, values)
        parts |= {"{A}": capitalised(action), "{a}": action}
        text = frame
        for slot in ("{A}", "{a}", "{M}", "{S}", "{L}", "{K}", "{J}"):
            text = text.replace(slot, parts[slot], 1)
        return text.strip(), tool.in_order(values)

    def frame(self, values, count):
        """A sentence pattern that suits the values."""
        frames = phrasing.FRAMES
        if self.held_tools:
            frames = phrasing.HELD_OUT_FRAMES
        elif self.inventive and self.chance(0.5):
            frames = phrasing.MORE_FRAMES
        frame = self.pick(frames)
        if not count:
            frame = self.pick(phrasing.FRAMES_WITHOUT_VALUES)
        if has_lines(values) and "{L}" not in frame and "{K}" not in frame:
            frame = self.pick(phrasing.LONG_FRAMES) if not self.held_tools else phrasing.HELD_OUT_LONG_FRAME
        if "{M}" in frame and count > 4:
            frame = phrasing.LONG_FRAMES[0] if not self.held_tools else phrasing.HELD_OUT_LONG_FRAME
        return frame

    def frame_parts(self, frame, mentioned, values):
        """What the slots of a frame may hold (all are drawn, whichever the frame uses)."""

        def said(parameter, style=""):
            value = values[parameter.name]
            if isinstance(value, bool) and "{J}" not in frame:
                return self.pick(["true", "yes", "on"] if value else ["false", "no", "off"])
            if isinstance(value, str) and parameter.base_kind in USUALLY_QUOTED and self.chance(0.75):
                style = "q"
            return self.say(value, parameter.base_kind, style)

        return {
            "{M}": self.mentions(frame, mentioned, values, said),
            "{S}": " ".join(self.sentence(p, said) for p in mentioned),
            "{L}": self.lines(mentioned, values, said),
            "{K}": self.key_values(mentioned, values, said),
            "{J}": json.dumps({p.name: values[p.name] for p in mentioned}, ensure_ascii=False),
        }

    def sentence(self, parameter, said):
        return self.pick(phrasing.SENTENCES).replace("{p}", parameter.spoken).replace("{v}", said(parameter))

    def mentions(self, frame, mentioned, values, said):
        if "{M}" in frame and self.chance(0.5) and len(mentioned) < 5:
            text = self.natural_mentions(mentioned, said)
        else:
            separator = self.pick([" ", " ", ", "])
            text = separator.join(self.mention(p, values[p.name], said) for p in mentioned)
        return re.sub(r"^and ", "with ", text)

    def mention(self, parameter, value, said):
        if isinstance(value, bool) and self.chance(0.3):
            return f"and it should be {parameter.spoken}" if value else f"and it should not be {parameter.spoken}"
        if isinstance(value, str) and "{" in value:
            return f"with {parameter.spoken} {said(parameter)}"
        return self.pick(phrasing.MENTIONS).format(p=parameter.spoken, v=said(parameter))

    def natural_mentions(self, mentioned, said):
        """Mention values without naming their parameters, where the kinds make it clear."""
        seen, mentions = set(), []
        for parameter in mentioned:
            kind = parameter.base_kind
            look = phrasing.LOOKS_LIKE.get(kind, kind)
            if kind not in phrasing.NATURAL or look in seen:
                pattern, style = self.pick(phrasing.MENTIONS), ""
            else:
                seen.add(look)
                pattern = self.pick(phrasing.NATURAL[kind].split("|"))
                style = "q" if kind in QUOTED_IN_MENTIONS else ""
            mentions.append(pattern.replace("{p}", parameter.spoken).replace("{v}", said(parameter, style)))
        return " ".join(mentions)

    def lines(self, mentioned, values, said):
        """One line for each value."""
        bullet = self.pick(["- ", "* ", "", "", "• "])
        separator = self.pick([": ", ": ", " = ", " - "])
        if self.chance(0.3):
            key = lambda p: p.name
        elif self.chance(0.6):
            key = lambda p: p.spoken
        else:
            key = lambda p: p.spoken.capitalize()
        lines = []
        for p in mentioned:
            value = values[p.name]
            block = isinstance(value, str) and "\n" in value
            lines.append(f"{bullet}{key(p)}{separator}" + ("\n" + self.say(value, "", "b") if block else said(p)))
        return "\n".join(lines)

    def key_values(self, mentioned, values, said):
        """Everything on one line."""
        separator = self.pick(["; ", ", "] if not has_lines(values) else ["\n"])
        return separator.join(f"{p.spoken}{self.pick([': ', ' ', ' = '])}{said(p)}" for p in mentioned)

    # ---------------------------------------------------------------- either sort of tool
    def tool(self):
        return self.archetype_tool() if self.chance(0.5) else self.generated_tool()

    def request(self, tool):
        """-> (text, arguments)"""
        return self.archetype_request(tool) if tool.archetype else self.generated_request(tool)

    def with_others(self, needed, count):
        """The needed tools among `count` others (fewer if names or archetypes clash), shuffled."""
        tools = list(needed)
        for _ in range(count):
            tool = self.tool()
            if tool.name in {t.name for t in tools}:
                continue
            if tool.archetype and any(t.archetype is tool.archetype for t in tools):
                continue
            tools.append(tool)
        self.rng.shuffle(tools)
        return tools

    def incomplete_request(self):
        """-> (tool, text, the required parameter that the text lacks)"""
        for _ in range(50):
            tool = self.tool()
            if tool.archetype:
                requests = [r for r in tool.archetype.incomplete if r[0] in tool.slots and tool.slots[r[0]].required]
                if not requests:
                    continue
                slot, pattern = self.pick(requests)
                return tool, self.fill(pattern, tool)[0], tool.slots[slot]
            required = [p for p in tool.parameters if p.required]
            if not required:
                continue
            parameter = self.pick(required)
            return tool, self.generated_request(tool, without=parameter)[0], parameter
        raise RuntimeError("no tool with a required parameter")


def has_lines(values):
    """Whether a value has several lines."""
    return any(isinstance(value, str) and "\n" in value for value in values.values())
