"""Sentence patterns of requests for generated tools.

{A} and {a} are the action (capitalised or not), {M} mentions of the values, {S} sentences, {L} lines, {K} one line of
keys and values, {J} a JSON object.
"""

FRAMES = [
    "{A} {M}.",
    "Please {a} {M}.",
    "Can you {a} {M}?",
    "I need to {a}. {S}",
    "{A}: {K}",
    "Could you {a}? {S}",
    "I'd like you to {a} {M}.",
    "{A}.\n{L}",
    "{A} with these values:\n{L}",
    "{A} {M}, please.",
    "Hi! {A} {M}. Thanks",
    "{S} {A}.",
    "I want to {a}, {M}.",
    "{a} {M}",
    "Help me {a}: {K}.",
    "{A} using {J}",
    "Use these settings to {a}: {J}",
    "We have to {a} {M}. Can you do that?",
    "Hello, could you {a} {M}?",
    "{S} With that, {a}.",
]
# Used in training only; heldout_tools.jsonl was made without them.
MORE_FRAMES = [
    "I'm trying to {a} {M}.",
    "{S} Please {a}.",
    "There is something to do: {a}. {S}",
    "Here are the details to {a}: {K}",
    "Use {J} and {a}.",
    "{a}: {K}",
    "{A}, {M}!",
    "{A}. Details:\n{L}",
    "I would be glad if you {a} {M}.",
    "Just {a} {M}.",
    "Next, {a} {M}.",
    "One more thing: {a}. {S}",
    "For this I want to {a}. {K}",
    "{L}\n{A}.",
    "Given these values, {a}:\n{L}",
    "Now {a} {M}.",
    "You should {a} {M}.",
    "Someone has to {a}. {S}",
    "{A}. {K}",
    "{A}. {S} Thank you!",
    "{K}. {A}.",
    "ok {a} {M}",
    "{A} right away {M}.",
    "Our team needs to {a} {M}.",
    "{M}, {a}.",
    "I have a request: {a} {M}.",
    "Make sure to {a} {M}.",
    "{A} where {K}",
    "{J}\n{A} with that.",
    "Any chance you could {a} {M}?",
]
HELD_OUT_FRAMES = [
    "Quick job: {a}. {S}",
    "My manager asked me to {a} {M}.",
    "It would be great if you could {a} {M}.",
    "{A} for me; {K}",
    "Time to {a}. Here is what I know:\n{L}",
    "Let's {a}. {S}",
    "Would you kindly {a} {M}?",
    "Go ahead and {a}, taking {J}",
]
FRAMES_WITHOUT_VALUES = ["{A}.", "Please {a}.", "Can you {a}?", "{A}, please.", "I need you to {a}."]
# For values of several lines, and for many values.
LONG_FRAMES = ["{A}.\n{L}", "Please {a}:\n{L}"]
HELD_OUT_LONG_FRAME = "Time to {a}. Here is what I know:\n{L}"

MENTIONS = [
    "with {p} {v}",
    "with the {p} {v}",
    "with {p} set to {v}",
    "where {p} is {v}",
    "using {v} as {p}",
    "{p} {v}",
    "the {p} being {v}",
    "and {p} {v}",
    "{p}: {v}",
    "{p} = {v}",
]
SENTENCES = [
    "The {p} is {v}.",
    "The {p} should be {v}.",
    "Set the {p} to {v}.",
    "Use {v} for the {p}.",
    "Its {p}: {v}.",
    "As {p} take {v}.",
]
# How to mention a value without naming its parameter, where the kind of value tells which one is meant.
NATURAL = {
    "person": "for {v}|by {v}|with {v}|from {v}|to {v}",
    "city": "in {v}|at {v}|near {v}|around {v}|to {v}|from {v}|for {v}",
    "email": "to {v}|for {v}|using {v}",
    "date": "on {v}|by {v}|for {v}|from {v}|until {v}",
    "time": "at {v}|by {v}|from {v}",
    "phrase": "called {v}|named {v}|about {v}|saying {v}|for {v}",
    "sentence": "saying {v}|with the text {v}|that reads {v}|and write {v}",
    "title": "called {v}|titled {v}|named {v}",
    "word": "{v}|for {v}|on {v}|of {v}|named {v}",
    "path": "from {v}|in {v}|at {v}|to {v}|{v}",
    "url": "from {v}|at {v}|to {v}|{v}",
    "id": "{v}|number {v}|with number {v}",
    "phone": "at {v}|to {v}|for {v}",
    "color": "in {v}",
    "country": "in {v}|for {v}|to {v}",
    "lang": "in {v}|into {v}",
    "cur": "in {v}",
    "version": "version {v}|at {v}",
    "ip": "at {v}|on {v}",
    "host": "on {v}|at {v}",
    "uuid": "{v}|with id {v}",
    "hex": "{v}|for {v}",
    "shell": "with {v}|using {v}",
    "regex": "matching {v}|for {v}",
    "file": "from {v}|{v}|as {v}|in {v}",
    "room": "in the {v}",
    "ticker": "{v}|for {v}",
    "expr": "for {v}|{v}|with {v}",
    "hashtag": "with {v}|under {v}",
    "coords": "at {v}",
    "int": "with {v} {p}|at {v} {p}|for {v} {p}|number {v}",
    "num": "with {v} {p}|of {v}|at {v}",
    "enum": "as {v}|{v}|in {v}|with {v}",
    "arr": "with {v}|for {v}|: {v}",
    "arrint": "with {v}|for {v}",
    "datetime": "at {v}|from {v}",
}
# Kinds that one cannot tell apart by their look share a name here.
LOOKS_LIKE = {
    "phrase": "text",
    "sentence": "text",
    "title": "text",
    "word": "text",
    "int": "number",
    "num": "number",
    "path": "file",
    "file": "file",
}

# Around requests for hand-written tools, in training only.
OPENINGS = [
    "I have a request: ",
    "One more thing. ",
    "Next: ",
    "OK, ",
    "Now: ",
    "Quick question. ",
    "If you can: ",
    "For my boss: ",
]
CLOSINGS = [
    " Do it now.",
    " Please be quick.",
    " I would be grateful.",
    " That is all.",
    " Can you do that?",
    " ok?",
]
