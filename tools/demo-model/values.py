"""Random argument values of every kind, and how a user would write them in a request.

The order of the random draws is part of the data: changing it changes heldout_tools.jsonl and the training shards.
"""

import json
import re
import string

import words
from bank import is_held_out

HEX_DIGITS = "0123456789abcdef"
FOREIGN = ["ok", "ça va", "naïve", "über", "日本", "✓", "😀", "½"]
ROOT_FOLDERS = ["home", "var", "etc", "srv", "opt", "tmp", "usr", "data"]


class Values:
    """Draws values.  A kind is a name such as `city`, some with arguments such as `int(1,10)` or `enum(a,b)`."""

    def __init__(self, bank, rng, held_values=False, inventive=False):
        """`held_values`: draw from the held-out half; `inventive`: mix in words that do not exist (for training)."""
        self.bank, self.rng, self.pick = bank, rng, rng.choice
        self.held_values, self.inventive = held_values, inventive

    def chance(self, probability):
        return self.rng.random() < probability

    # ---------------------------------------------------------------- words
    def word(self):
        if self.inventive and self.chance(0.15):
            return self.invented_word()
        bank = self.bank
        return self.pick((bank.common_words if self.chance(0.75) else bank.words)[self.held_values])

    def invented_word(self):
        """A word that exists nowhere, so that it can only be copied; never one of the held-out words."""
        rng, known = self.rng, self.bank.words[False]
        while True:
            style = rng.random()
            if style < 0.5:
                head, tail = self.pick(known), self.pick(known)
                word = head[: rng.randint(1, max(1, len(head) - 1))] + tail[rng.randint(1, len(tail) - 1) :]
            elif style < 0.8:
                word = "".join(self.pick(known)[: rng.randint(1, 3)] for _ in range(rng.randint(2, 4)))
            else:
                word = "".join(self.pick(string.ascii_lowercase) for _ in range(rng.randint(3, 8)))
            if 3 <= len(word) <= 12 and not is_held_out(word):
                return word

    def invented_name(self):
        return "".join(self.pick(words.SYLLABLES) for _ in range(self.rng.randint(2, 3))).capitalize()

    def digits(self, count):
        return "".join(self.pick("0123456789") for _ in range(count))

    def hex_digits(self, count):
        return "".join(self.pick(HEX_DIGITS) for _ in range(count))

    def identifier(self):
        return self.pick([self.word(), f"{self.word()}_{self.word()}", self.word()[:4], self.pick("xyzabnkij")])

    # ---------------------------------------------------------------- values by kind
    def value(self, kind):
        """A value of the kind, as the JSON type that its schema asks for."""
        match = re.fullmatch(r"(\w+)\((.*)\)", kind)
        name, argument = match.groups() if match else (kind, "")
        if name in ("enum", "ch"):
            return self.pick(argument.split(","))
        if name in ("int", "num", "arr"):
            return getattr(self, f"value_{name}")(argument)
        return getattr(self, f"value_{name}")()

    def value_int(self, bounds):
        low, high = map(int, bounds.split(","))
        if high - low < 200 or self.chance(0.5):
            return self.rng.randint(low, high)
        return min(high, max(low, int(10 ** self.rng.uniform(0, len(str(high))))))

    def value_num(self, bounds):
        """A number that is not whole."""
        low, high = map(float, bounds.split(","))
        number = round(self.rng.uniform(low, high), self.pick([1, 1, 2, 2, 3]))
        return number if number != int(number) else round(number + 0.5, 1)

    def value_bool(self):
        return self.chance(0.5)

    def value_arr(self, kind):
        return [self.value(kind) for _ in range(self.pick([1, 2, 2, 3, 3, 4, 5]))]

    def value_arrint(self):
        rng = self.rng
        return [
            rng.randint(-20 if self.chance(0.2) else 0, self.pick([9, 50, 500, 9999])) for _ in range(rng.randint(2, 6))
        ]

    def value_arrnum(self):
        return [self.value("num(0,90)") for _ in range(self.rng.randint(2, 5))]

    def value_obj(self):
        entries = {}
        for _ in range(self.rng.randint(1, 3)):
            value = self.pick([self.word(), self.rng.randint(0, 999), self.chance(0.5), self.value_phrase()])
            entries[self.identifier() if self.chance(0.3) else self.word()] = value
        return entries

    def value_person(self):
        first = self.pick(self.bank.first_names[self.held_values])
        last = self.pick(self.bank.last_names[self.held_values])
        style = self.rng.random()
        if style < 0.15:
            return first
        if style < 0.3:
            last = self.invented_name()
        if style < 0.35:
            first = self.invented_name()
        if style < 0.4:
            return f"{self.pick(['Dr.', 'Ms.', 'Mr.', 'Prof.'])} {last}"
        if style < 0.45:
            return f"{first} {self.pick(string.ascii_uppercase)}. {last}"
        if style < 0.48:
            return f"{first}-{self.pick(self.bank.first_names[self.held_values])} {last}"
        return f"{first} {last}"

    def value_city(self):
        style = self.rng.random()
        if style < 0.7:
            return self.pick(self.bank.cities[self.held_values])
        if style < 0.85:
            return self.invented_name() + self.pick(["", "burg", "ton", " City", "ville", " Bay", "stad", "ford"])
        if style < 0.93:
            return f"{self.pick(self.bank.cities[self.held_values])}, {self.pick(words.COUNTRIES)}"
        return f"{self.pick(['Port', 'New', 'Fort', 'Lake', 'San', 'Mount', 'North', 'West'])} {self.invented_name()}"

    def value_country(self):
        return self.pick(words.COUNTRIES)

    def value_word(self):
        return self.word()

    def value_phrase(self):
        parts = [self.word() for _ in range(self.pick([1, 2, 2, 3, 3, 4, 5]))]
        style = self.rng.random()
        if style < 0.25:
            filler = ["the", "of", "for", "and", "in", "with", "my", "a"]
            parts.insert(self.rng.randrange(len(parts) + 1), self.pick(filler))
        phrase = " ".join(parts)
        if style > 0.6:
            phrase = phrase[0].upper() + phrase[1:]
        if style > 0.93:
            phrase += self.pick([" 2", " (draft)", " #3", ": part 1", " v2", "!", " & co", " - final"])
        elif style > 0.88:
            phrase += ", " + self.word()
        return phrase

    def value_title(self):
        title = " ".join(self.word().capitalize() for _ in range(self.pick([1, 2, 2, 3, 3])))
        style = self.rng.random()
        if style < 0.15:
            title = "The " + title
        name = self.invented_name
        if style > 0.9:
            title += self.pick([" 3000", " & " + name(), " XL", ": " + name(), " (2nd Edition)", " No. 5", "'s Day"])
        elif style > 0.8:
            title += self.pick([" Review", " Meeting", " Lunch", " Call", " of " + name(), " Pro", " Guide"])
        return title

    def value_sentence(self):
        sentences, style = self.bank.sentences[self.held_values], self.rng.random()
        if style < 0.7:
            return self.pick(sentences)
        if style < 0.8:
            start = f"{self.word().capitalize()} {self.word()} {self.pick(['at', 'on', 'by', 'for'])}"
            return f"{start} {self.value(self.pick(['time', 'date', 'city']))}{self.pick(['.', '!', '?', ''])}"
        if style < 0.86:
            return f"{self.value_phrase()} — {self.value_phrase()} … {self.pick(FOREIGN)}"
        if style < 0.92:
            return f'{self.value_phrase()}: "{self.value_phrase()}" ({self.rng.randint(1, 99)}%)'
        separator = " " if style < 0.97 else "\n"
        return self.pick(sentences) + separator + self.pick(sentences)

    # ---------------------------------------------------------------- addresses and codes
    def value_email(self):
        users = [
            self.word(),
            self.word() + "." + self.word(),
            self.pick(words.FIRST_NAMES[:60]).lower() + self.pick(["", ".", "_"]) + self.word(),
            self.word() + self.digits(2),
            self.word() + "+" + self.word(),
        ]
        user = self.pick(users)
        domain = self.pick([self.word(), self.word() + "-" + self.word(), "mail." + self.word()])
        return f"{user}@{domain}.{self.pick(words.TOP_LEVEL_DOMAINS)}"

    def value_url(self):
        site = f"{self.pick(['https', 'https', 'http'])}://{self.pick(['', 'www.', 'api.', 'docs.'])}{self.word()}"
        site += f".{self.pick(words.TOP_LEVEL_DOMAINS)}"
        pages = [
            "",
            "/",
            f"/{self.word()}",
            f"/{self.word()}/{self.word()}.html",
            f"/v{self.rng.randint(1, 4)}/{self.word()}/{self.rng.randint(1, 999)}",
            f"/{self.word()}?{self.word()}={self.word()}",
            f"/{self.word()}?id={self.digits(4)}&{self.word()}={self.rng.randint(0, 9)}#{self.word()}",
            f":{self.digits(4)}/{self.word()}",
        ]
        return site + self.pick(pages)

    def value_path(self):
        style = self.rng.random()
        folders = [self.identifier() for _ in range(self.rng.randint(1, 3))]
        file = f"{self.identifier()}.{self.pick(words.EXTENSIONS)}"
        if style < 0.45:
            return "/" + "/".join([self.pick(ROOT_FOLDERS), *folders, file])
        if style < 0.6:
            return "/".join([*folders, file])
        if style < 0.7:
            return "C:\\" + "\\".join([*folders, file])
        if style < 0.78:
            return "~/" + "/".join(folders)
        if style < 0.86:
            return "./" + "/".join(folders) + "/"
        if style < 0.93:
            return file
        return "../" + "/".join(folders) + "/" + file.replace(".", "-" + self.digits(2) + ".")

    def value_file(self):
        name = self.identifier()
        suffix = self.pick(["", "_" + self.digits(2), "-final", " " + self.word(), "." + self.word()])
        return f"{name}{suffix}.{self.pick(words.EXTENSIONS)}"

    def value_date(self):
        return f"{self.rng.randint(2019, 2031)}-{self.rng.randint(1, 12):02d}-{self.rng.randint(1, 28):02d}"

    def value_time(self):
        return f"{self.rng.randint(0, 23):02d}:{self.pick([0, 15, 30, 45, self.rng.randint(0, 59)]):02d}"

    def value_datetime(self):
        zone = ["", "Z", "+02:00"]
        return f"{self.value_date()}T{self.value_time()}:{self.rng.randint(0, 59):02d}{self.pick(zone)}"

    def value_phone(self):
        numbers = [
            f"+{self.rng.randint(1, 99)} {self.digits(3)} {self.digits(7)}",
            f"{self.digits(3)}-{self.digits(3)}-{self.digits(4)}",
            f"({self.digits(3)}) {self.digits(3)}-{self.digits(4)}",
            f"0{self.digits(3)}/{self.digits(6)}",
        ]
        return self.pick(numbers)

    def value_id(self):
        letters = string.ascii_uppercase
        ids = [
            f"{self.word()[:3].upper()}-{self.digits(self.rng.randint(3, 6))}",
            self.digits(self.rng.randint(4, 10)),
            f"#{self.digits(5)}",
            f"{self.pick(letters)}{self.digits(3)}{self.pick(letters)}{self.digits(2)}",
            f"{self.word()}-{self.rng.randint(1, 99)}",
            f"INV/{self.rng.randint(2020, 2030)}/{self.digits(4)}",
            "00" + self.digits(3),
        ]
        return self.pick(ids)

    def value_hex(self):
        return self.hex_digits(self.pick([7, 8, 12, 16]))

    def value_uuid(self):
        h = self.hex_digits(32)
        return self.pick([f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}", h[:12], f"sess_{h[:10]}"])

    def value_version(self):
        start = f"{self.pick(['', 'v'])}{self.rng.randint(0, 12)}.{self.rng.randint(0, 30)}"
        return start + self.pick(["", "." + str(self.rng.randint(0, 20)), "-beta.1", ".0-rc2"])

    def value_ip(self):
        return ".".join(str(self.rng.randint(0, 255)) for _ in range(4))

    def value_host(self):
        hosts = [
            f"{self.word()}-{self.rng.randint(1, 40):02d}",
            f"{self.word()}.{self.word()}.{self.pick(['lan', 'local', 'internal', 'example.com'])}",
            f"{self.pick(['db', 'web', 'cache', 'node'])}{self.rng.randint(1, 99)}",
        ]
        return self.pick(hosts)

    def value_color(self):
        return self.pick(words.COLORS) if self.chance(0.7) else "#" + self.hex_digits(6)

    def value_room(self):
        return self.pick(words.ROOMS)

    def value_lang(self):
        return self.pick(words.LANGUAGES)

    def value_cur(self):
        return self.pick(words.CURRENCIES)

    def value_ticker(self):
        return "".join(self.pick(string.ascii_uppercase) for _ in range(self.rng.randint(2, 5)))

    def value_hashtag(self):
        return "#" + self.word() + self.pick(["", self.word().capitalize(), self.digits(2)])

    def value_coords(self):
        return f"{self.rng.uniform(-90, 90):.4f}, {self.rng.uniform(-180, 180):.4f}"

    def value_expr(self):
        def number():
            rng = self.rng
            return str(self.pick([rng.randint(0, 12), rng.randint(2, 999), round(rng.uniform(0, 99), 2)]))

        style = self.rng.random()
        sum_ = f"{number()} {self.pick('+-*/')} {number()}"
        if style < 0.25:
            return f"({sum_}) {self.pick('*/+-')} {number()}"
        if style < 0.35:
            return sum_.replace(" ", "")
        if style < 0.42:
            return f"sqrt({number()})"
        if style < 0.5:
            return f"{number()} {self.pick(['^', '**', '%'])} {self.rng.randint(2, 9)}"
        if style < 0.6:
            return f"{sum_} {self.pick('+-')} {number()}"
        return sum_

    def value_equation(self):
        unknown = self.pick("xyznt")
        left = f"{self.rng.randint(2, 30)}{unknown} {self.pick('+-')} {self.rng.randint(1, 90)}"
        return f"{left} = {self.pick([self.rng.randint(0, 300), str(self.rng.randint(2, 9)) + unknown])}"

    # ---------------------------------------------------------------- code and markup
    def value_regex(self):
        patterns = [
            f"{self.identifier()}\\(",
            f"^{self.word()}.*$",
            f"{self.word()}|{self.word()}",
            f"[A-Z]{{2,}}_{self.word()}",
            f"TODO: {self.word()}",
            f"def {self.identifier()}",
            f"\\b{self.word()}\\b",
            self.identifier(),
            f"{self.word()}::{self.word()}",
        ]
        return self.pick(patterns)

    def value_glob(self):
        extension = lambda: self.pick(words.EXTENSIONS)
        return self.pick(
            [f"*.{extension()}", f"**/*.{extension()}", f"{self.word()}*", f"{self.word()}_??.{extension()}"]
        )

    def value_shell(self):
        rng, path = self.rng, self.value_path()
        commands = [
            f"ls -la {path}",
            f"grep -rn '{self.word()}' {self.word()}/",
            f'git commit -m "{self.value_phrase()}"',
            f"cargo {self.pick(['test', 'build', 'run'])} --{self.word()}",
            f"cat {self.word()}.log | wc -l",
            f"docker run --rm {self.word()}:{rng.randint(1, 9)}.{rng.randint(0, 9)}",
            f"mkdir -p {self.word()}/{self.word()} && cd {self.word()}",
            f"curl -s http://{self.word()}.local:{self.digits(4)}/{self.word()}",
            f"find . -name '*.{self.pick(words.EXTENSIONS)}' -size +{rng.randint(1, 99)}k",
            f"python3 {self.identifier()}.py --{self.word()} {rng.randint(1, 99)}",
            f"echo $HOME > {self.word()}.txt",
            f"kill -9 {self.digits(4)}",
        ]
        return self.pick(commands)

    def value_sql(self):
        table, column = self.identifier(), self.identifier()
        queries = [
            f"SELECT * FROM {table}",
            f"SELECT {column}, {self.identifier()} FROM {table} WHERE {self.word()} > {self.rng.randint(0, 999)}",
            f"SELECT COUNT(*) FROM {table} WHERE {column} = '{self.word()}';",
            f"UPDATE {table} SET {column} = {self.rng.randint(0, 99)} WHERE id = {self.digits(3)}",
            f"DELETE FROM {table} WHERE {column} LIKE '%{self.word()}%'",
            f"INSERT INTO {table} ({column}) VALUES ('{self.value_phrase()}')",
            f"SELECT {column} FROM {table} ORDER BY {column} DESC LIMIT {self.rng.randint(1, 50)}",
        ]
        return self.pick(queries)

    def value_json(self):
        entries = self.value_obj()
        if self.chance(0.3):
            numbers = [self.rng.randint(0, 99) for _ in range(self.rng.randint(1, 3))]
            entries[self.word()] = numbers
        return json.dumps(entries, ensure_ascii=False)

    def value_md(self):
        texts = [
            f"# {self.value_title()}\n\n- {self.value_phrase()}\n- {self.value_phrase()}",
            f"**{self.value_phrase()}** and `{self.identifier()}`",
            f'<p class="{self.word()}">{self.value_phrase()}</p>',
            f"1. {self.value_phrase()}\n2. {self.value_phrase()}",
            f"Hello {{{{{self.identifier()}}}}}, {self.value_phrase()}",
        ]
        return self.pick(texts)

    def value_code(self):
        rng = self.rng
        a, b, c, n = self.identifier(), self.identifier(), self.identifier(), rng.randint(1, 200)
        snippets = [
            f"print({n} * {rng.randint(2, 99)})",
            f"{a} = [{rng.randint(0, 9)}, {rng.randint(0, 9)}, {n}]\nprint(sum({a}))",
            f"def {a}({b}):\n    return {b} + {n}\n\nprint({a}({rng.randint(0, 99)}))",
            f"for {b} in range({n}):\n    if {b} % {rng.randint(2, 9)} == 0:\n        print({b})",
            f"fn {a}({b}: i32) -> i32 {{\n    {b} * {n}\n}}",
            f'const {a} = "{self.value_phrase()}";\nconsole.log({a}.length);',
            f"{a}: {self.word()}\n{c}:\n  - {self.word()}\n  - {n}",
            f"import {self.word()}\n{a} = {self.word()}.{c}('{self.word()}')\nprint({a})",
            f"x = {n}\ny = x ** 2\nprint(x, y)",
            f'[{a}]\n{c} = "{self.word()}"\n{b} = {n}',
            f"while {a} < {n}:\n    {a} += {rng.randint(1, 9)}",
            f"if ({a} > {n}) {{\n  return '{self.word()}';\n}}",
            f"{self.value_phrase()}\n{self.value_phrase()}\n",
            f'<div id="{a}">\n  <b>{self.value_phrase()}</b>\n</div>',
            f"print('{self.value_phrase()}')",
        ]
        return self.pick(snippets).strip()

    # ---------------------------------------------------------------- values inside a request
    def say(self, value, kind="", style=""):
        """The text of a value inside a user request; style "q" asks for quotes and "b" for a block."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return words.NUMBER_WORDS[value] if value in words.NUMBER_WORDS and self.chance(0.12) else str(value)
        if isinstance(value, float):
            return str(value)
        if isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            return self.say_list(value)
        if style == "b":
            return self.pick([f"```\n{value}\n```", value, f"```\n{value}\n```"])
        if "\n" in value:
            return f"\n{value}\n" if style != "q" else f"\n```\n{value}\n```\n"
        if style == "q" or (kind in ("sentence", "phrase", "title") and self.chance(0.3)):
            return self.quote(value)
        return value

    def say_list(self, values):
        texts = [str(value) for value in values]
        style = self.rng.random()
        if style < 0.2 or any("," in text or " and " in text for text in texts):
            return json.dumps(values, ensure_ascii=False)
        if style < 0.4:
            return ", ".join(texts)
        if len(texts) == 1:
            return texts[0]
        return ", ".join(texts[:-1]) + self.pick([" and ", ", and ", " and "]) + texts[-1]

    def quote(self, value):
        """The value in quotes that it does not contain itself, preferably double ones."""
        quoted = [f'"{value}"'] if '"' not in value else []
        if "'" not in value:
            quoted.append(f"'{value}'")
        if "`" not in value and self.chance(0.3):
            quoted.append(f"`{value}`")
        if quoted and self.chance(0.6):
            return quoted[0]
        return self.pick(quoted) if quoted else value
