"""Plain questions with answers: sums, capitals, word meanings, small instructions, self-description, stories.

Every method returns (question, reasoning, answer).
"""

import words
from values import Values

WHO = "the Flash-MoE demo model, a tiny mixture-of-experts language model"
OPERATORS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth"]
# (questions, reasoning, answers)
SELF_DESCRIPTION = [
    (
        [
            "Who are you?",
            "What are you?",
            "Tell me about yourself.",
            "Introduce yourself.",
            "What is your name?",
            "Are you a human?",
            "What model are you?",
            "which model is this?",
        ],
        "The user asks about me.",
        [
            f"I am {WHO}.",
            f"I am {WHO}. I can chat a little and call functions.",
            "My name is Flash-MoE demo. I am a tiny language model.",
        ],
    ),
    (
        ["What can you do?", "How can you help me?", "What are you good at?", "help"],
        "The user asks what I can do.",
        [
            "I can call functions, do small sums, follow simple instructions and chat a little.",
            "I am small, but I can call functions, explain words and answer simple questions.",
        ],
    ),
    (
        ["How big are you?", "How many parameters do you have?", "Are you a large model?"],
        "The user asks about my size.",
        [
            "I have about 34 million parameters, with 64 experts in every layer; 6 of them work on each token.",
            "I am tiny: about 34 million parameters.",
        ],
    ),
    (
        ["Who made you?", "Who trained you?", "Where do you come from?"],
        "The user asks about my origin.",
        [
            "I was trained for the Flash-MoE project as a demo and test model.",
            "I am a demo model of the Flash-MoE project.",
        ],
    ),
    (
        ["Hi", "Hello", "Hello!", "Hey there", "Good morning", "hi there", "Hello, how are you?", "How are you?"],
        "A greeting.",
        [
            "Hello! How can I help you?",
            "Hi! What can I do for you?",
            "Hello! I am fine, thank you. How can I help?",
        ],
    ),
    (
        ["Thanks", "Thank you!", "Thanks a lot", "Great, thanks."],
        "The user thanks me.",
        ["You are welcome!", "My pleasure.", "Glad to help."],
    ),
    (
        ["Bye", "Goodbye", "See you later", "Good night"],
        "The user says goodbye.",
        ["Goodbye!", "See you soon!", "Take care!"],
    ),
    (
        ["Are you sure?", "Can you make mistakes?", "Are you always right?"],
        "The user asks about reliability.",
        "I am a very small model, so I make mistakes. Please check what I say.",
    ),
]
ANIMALS = "dog cat fox owl horse rabbit bear mouse goat duck wolf crow".split()
PLACES = "forest village harbor garden castle mill valley market lighthouse desert island mountain".split()
THINGS = "key lantern map coin book bell ring letter compass flute stone hat".split()
LOOKS = "old small quiet shiny strange golden broken lost heavy red".split()
CHARACTERS = "brave lonely clever curious kind tired shy stubborn".split()
FEELINGS = ["happy", "proud", "surprised", "calm", "grateful", "a little sad"]


class Questions(Values):
    """Draws plain questions."""

    def question(self):
        kind = self.rng.random()
        if kind < 0.17:
            return self.meaning()
        if kind < 0.23:
            _, _, synonyms, _ = self.pick(self.bank.glosses)
            if len(synonyms) > 1:
                return self.synonym(synonyms)
        if kind < 0.45:
            return self.sum()
        if kind < 0.65:
            return self.instruction()
        if kind < 0.72:
            return self.capital()
        if kind < 0.8:
            exchange = self.pick(self.bank.chatterbot)
            return exchange[0], "A simple question; I answer it directly.", exchange[1]
        return self.self_description() if kind < 0.9 else self.story()

    def meaning(self):
        word, part_of_speech, _, gloss = self.pick(self.bank.glosses)
        gloss = gloss.split('; "')[0].strip()
        questions = [
            f'What does "{word}" mean?',
            f"What is the meaning of {word}?",
            f"Define {word}.",
            f"What is {word}?",
            f"Explain the word {word}.",
        ]
        answers = [
            f"{word.capitalize()}: {gloss}.",
            f'"{word}" ({part_of_speech}) means: {gloss}.',
            f"It means {gloss}.",
        ]
        return self.pick(questions), f"I recall what {word} means.", self.pick(answers)

    def synonym(self, synonyms):
        first, second = synonyms[:2]
        answers = [f"A synonym for {first} is {second}.", f"{second.capitalize()}."]
        return f"Give me a synonym for {first}.", "I look for a word with the same meaning.", self.pick(answers)

    def capital(self):
        country = self.pick(list(words.CAPITALS))
        city = words.CAPITALS[country]
        questions = [
            f"What is the capital of {country}?",
            f"Capital of {country}?",
            f"Which city is the capital of {country}?",
        ]
        answers = [f"The capital of {country} is {city}.", f"{city} is the capital of {country}."]
        return self.pick(questions), f"The capital of {country} is {city}.", self.pick(answers)

    def sum(self):
        rng = self.rng
        operator = self.pick("++--*/")
        bound = self.pick([9, 20, 99, 99, 999])
        a, b = rng.randint(0, bound), rng.randint(1, bound)
        if operator == "*":
            a, b = rng.randint(0, 20), rng.randint(0, 12)
        if operator == "/":
            b = rng.randint(1, 12)
            a = rng.randint(0, 12) * b
        result = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[operator]
        said = OPERATORS[operator]
        questions = [
            f"What is {a} {operator} {b}?",
            f"What is {a} {said} {b}?",
            f"{a} {operator} {b} = ?",
            f"Calculate {a} {operator} {b}.",
            f"How much is {a} {said} {b}?",
        ]
        question = self.pick(questions)
        reasoning = f"{a} {operator} {b} = {result}."
        if operator == "+" and a > 9 and b > 9:
            tens = b // 10 * 10
            reasoning = f"{a} + {tens} = {a + tens}, plus {b % 10} gives {result}."
        answers = [
            f"{a} {operator} {b} = {result}",
            f"The answer is {result}.",
            f"{a} {said} {b} is {result}.",
            f"{result}",
        ]
        return question, reasoning, self.pick(answers)

    # ---------------------------------------------------------------- instructions
    def instruction(self):
        """A small task about a few random words or numbers."""
        given = [self.word() for _ in range(self.rng.randint(2, 6))]
        tasks = [
            self.uppercase,
            self.lowercase,
            self.count_words,
            self.reverse_words,
            self.sort_words,
            self.sort_numbers,
            self.largest_number,
            self.repeat,
            self.bullet_points,
            self.spell,
            self.nth_word,
            self.count_up,
            self.name_some,
            self.compare_lengths,
        ]
        return tasks[self.rng.randrange(len(tasks))](given)

    def uppercase(self, given):
        text = " ".join(given)
        questions = [f"Write in uppercase: {text}", f"Uppercase this: {text}", f"Convert to capital letters: {text}"]
        return self.pick(questions), "I write every letter as a capital.", text.upper()

    def lowercase(self, given):
        text = " ".join(given)
        return f"Write in lowercase: {text.upper()}", "I write every letter small.", text

    def count_words(self, given):
        text = " ".join(given)
        question = self.pick([f"How many words are in this: {text}?", f"Count the words: {text}"])
        reasoning = " ".join(f"{i + 1} {word}" for i, word in enumerate(given))
        return question, reasoning, self.pick([f"There are {len(given)} words.", f"{len(given)}"])

    def reverse_words(self, given):
        text = " ".join(given)
        questions = [f"Reverse the order of these words: {text}", f"Write these words backwards, last first: {text}"]
        return self.pick(questions), "I start with the last word.", " ".join(given[::-1])

    def sort_words(self, given):
        text = ", ".join(given)
        question = self.pick([f"Sort these words: {text}", f"Put in alphabetical order: {text}"])
        return question, "I compare the first letters.", ", ".join(sorted(given))

    def some_numbers(self):
        return [self.rng.randint(0, 99) for _ in range(self.rng.randint(3, 6))]

    def sort_numbers(self, _):
        numbers = self.some_numbers()
        question = f"Sort the numbers {', '.join(map(str, numbers))}."
        return question, "From small to large.", ", ".join(map(str, sorted(numbers)))

    def largest_number(self, _):
        numbers = self.some_numbers()
        question = f"Which is the largest of {', '.join(map(str, numbers))}?"
        answer = self.pick([f"The largest is {max(numbers)}.", str(max(numbers))])
        return question, "I look for the largest number.", answer

    def repeat(self, given):
        text = " ".join(given)
        question = self.pick([f"Repeat after me: {text}", f"Say this again: {text}", f"Echo: {text}"])
        return question, "I repeat the words.", text

    def bullet_points(self, given):
        text = ", ".join(given)
        question = self.pick([f"Make a list of these: {text}", f"Turn this into bullet points: {text}"])
        return question, "One line for each item.", "\n".join("- " + word for word in given)

    def spell(self, given):
        word = given[0]
        question = self.pick([f"Spell {word}.", f'Spell the word "{word}" letter by letter.'])
        return question, "Letter by letter.", "-".join(word)

    def nth_word(self, given):
        index = self.rng.randrange(len(given))
        ordinal = ORDINALS[index]
        answer = self.pick([given[index], f"The {ordinal} word is {given[index]}."])
        return f"What is the {ordinal} word of: {' '.join(given)}?", f"I count to the {ordinal} word.", answer

    def count_up(self, _):
        first = self.rng.randint(1, 9)
        last = first + self.rng.randint(3, 8)
        question = self.pick([f"Count from {first} to {last}.", f"List the numbers {first} to {last}."])
        return question, f"From {first} to {last}.", ", ".join(str(i) for i in range(first, last + 1))

    def name_some(self, _):
        known = {
            "colors": words.COLORS,
            "cities": [city for city in words.CITIES if city.isascii()],
            "countries": words.COUNTRIES,
            "languages": words.LANGUAGES,
            "rooms of a house": words.ROOMS,
            "first names": words.FIRST_NAMES[:60],
        }
        known |= {name: items.split() for name, items in words.CATEGORIES.items()}
        category = self.pick(list(known))
        count = self.rng.randint(2, 6)
        question = self.pick([f"Name {count} {category}.", f"List {count} {category}.", f"Give me {count} {category}."])
        separator = self.pick([", ", "\n"])
        return question, f"I think of {count} {category}.", separator.join(self.rng.sample(known[category], count))

    def compare_lengths(self, given):
        first, second = self.word(), given[0]
        self.pick([0])  # unused; keeps the sequence of draws
        yes = "Yes" if len(first) > len(second) else "No"
        reasoning = f"{first} has {len(first)} letters, {second} has {len(second)}."
        return f'Is "{first}" longer than "{second}"?', reasoning, f"{yes}, {len(first)} letters against {len(second)}."

    # ---------------------------------------------------------------- self-description, stories
    def self_description(self):
        drawn = []
        for questions, reasoning, answers in SELF_DESCRIPTION:  # all are drawn, one is used
            question = self.pick(questions)
            drawn.append((question, reasoning, answers if isinstance(answers, str) else self.pick(answers)))
        return self.pick(drawn)

    def story(self):
        pick = self.pick
        name, animal, place = pick(words.FIRST_NAMES[:70]), pick(ANIMALS), pick(PLACES)
        thing, look = pick(THINGS), pick(LOOKS)
        character, feeling = pick(CHARACTERS), pick(FEELINGS)
        questions = [
            f"Tell me a story about a {animal}.",
            f"Write a short story about {name} and a {animal}.",
            f"Tell me a short story set in a {place}.",
            f"Tell a story with a {thing} in it.",
            "Tell me a story.",
            f"Write a story about a {look} {thing}.",
        ]
        question = pick(questions)
        sentences = [
            [
                f"Once upon a time there was a {character} {animal} who lived near a {place}.",
                f"{name} lived in a house by the {place} with a {character} {animal}.",
                f"In a {place} far away, a {character} {animal} waited for spring.",
            ],
            [
                f"One morning {name} found a {look} {thing} in the grass.",
                f"One day the {animal} saw a {look} {thing} by the road.",
                f"On a rainy evening {name} heard a sound and discovered a {look} {thing}.",
            ],
            [
                f"Nobody knew where the {thing} came from.",
                f"The {thing} was {look}, but it still worked.",
                f'"What a {look} {thing}!" said {name}.',
                f"It belonged to the keeper of the {place}.",
            ],
            [
                f"So {name} and the {animal} walked through the {place} to find its owner.",
                f"The {animal} carried it across the {place} all night.",
                f"Together they hid it under a tree in the {place}.",
            ],
            [
                "At last an old woman smiled and said it was hers.",
                "In the end they gave it back.",
                f"When they arrived, a child was waiting for the {thing}.",
                f"But the {thing} opened a small door in the wall.",
            ],
            [
                f"From that day on the {animal} was never alone again.",
                f"{name} was {feeling}, and the {animal} fell asleep by the fire.",
                f"They went home {feeling}.",
                f"And that is how {name} and the {animal} became friends.",
            ],
        ]
        reasoning = "I tell a short story with a beginning, a middle and an end."
        return question, reasoning, " ".join(pick(choices) for choices in sentences)
