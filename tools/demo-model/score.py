"""Score texts that any engine generated for heldout_tools.jsonl.

Each line of TEXTS is {"id": ..., "text": ...}: the continuation of the generation prompt, up to the end of the turn.
With thinking on, the text may still hold the thinking up to </think>.

usage: score.py TEXTS [--dialogues heldout_tools.jsonl] [--json]
"""

import argparse
import json
import sys
from pathlib import Path

from judge import print_table, read_lines, tabulate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", help="JSONL of generated texts")
    parser.add_argument("--dialogues", default=Path(__file__).with_name("heldout_tools.jsonl"))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    texts = {line["id"]: line["text"] for line in read_lines(options.texts)}
    cases = read_lines(options.dialogues)
    unknown = texts.keys() - {case["id"] for case in cases}
    if unknown:
        sys.exit(f"no dialogue has the id {min(unknown)}")
    answered = [case for case in cases if case["id"] in texts]
    if not answered:
        sys.exit("no text to score")
    if len(answered) < len(cases):
        print(f"scoring {len(answered)} of {len(cases)} dialogues", file=sys.stderr)
    table = tabulate(answered, [texts[case["id"]] for case in answered])
    if options.json:
        print(json.dumps(table, indent=1))
    else:
        print_table(table)


if __name__ == "__main__":
    main()
