"""Runs the functions that `case` marks, one after another, and says which of them failed."""

import sys
import time
import traceback

CASES = []


def case(function):
    """A case: it passes if it returns."""
    CASES.append(function)
    return function


def main(title):
    """Runs all cases whose name contains the last argument, if there is one; the exit code says whether all passed."""
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    n_passed, failed = 0, []
    for function in CASES:
        if wanted not in function.__name__:
            continue
        start = time.monotonic()
        try:
            function()
            n_passed += 1
        except Exception:  # noqa: BLE001: whatever went wrong is the case's failure
            failed.append(function.__name__)
            print(f"FAILED {function.__name__} ({time.monotonic() - start:.1f} s)")
            traceback.print_exc()
    print(f"{title}: {n_passed} passed, {len(failed)} failed")
    for name in failed:
        print(f"  {name}")
    sys.exit(bool(failed))


def raises(kind, call, *parts):
    """The error of `kind` that `call` ends in; its text has all `parts`."""
    try:
        call()
    except kind as error:
        for part in parts:
            assert part in str(error), (part, str(error))
        return error
    raise AssertionError(f"no {kind.__name__}")


WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city"}},
    "required": ["city"],
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["happy", "sad"]},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
}
TWO_CITIES = "What's the weather in Rome and Oslo?"
ONE_CITY = "What's the weather in Rome?"
