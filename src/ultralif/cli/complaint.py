"""What the argument parser complains about, in one sentence that names the flag, the value and the remedy."""

import re
from difflib import get_close_matches

__all__ = ["explain"]

_FORMS = (
    (r"Error parsing (?!-)\w+: (?P<why>.+)", "{why}"),
    (
        r"Error parsing (?P<flag>--\S+): .*?'(?P<value>[^'\n]*)'[^'\n]*\n"
        r"(?:.*\n)*?Argument helptext:\n\S+ (?P<kind>.+)",
        "{flag} takes {kind}, got '{value}'",
    ),
    (
        r"invalid choice '(?P<value>.*)' for argument '(?P<flag>.*)'\. Expected one of \((?P<choices>.*)\)",
        "{flag} must be one of {choices}, got '{value}'",
    ),
    (r"Missing value for argument '(?P<flag>.*)'", "{flag} needs a value"),
    (
        r"Missing from (?P<command>.*):\n.*\n(?P<what>.*?) \(required\)",
        "{command} needs {what}",
    ),
    (r"Expected one of \{(?P<choices>.*)\}", "say what to do: one of {choices}"),
)


_KINDS = {"INT": ("a", "whole number"), "FLOAT": ("a", "number"), "PATH": ("a", "path"), "STR": ("a", "name")}


def explain(complaint: str, command: str) -> str:
    """Return the sentence.

    Args:
        complaint: what the parser printed, unbroken.
        command: whose help is recommended.
    """
    lines = [line.strip("│╭╮╰╯─ ") for line in complaint.splitlines()]
    body = "\n".join(filter(None, lines)).partition("For full helptext")[0].strip()
    sentence = (_unknown(body) or _known_form(body) or body.replace("\n", "; ")).rstrip(".")
    return f"{sentence}{'' if sentence.endswith('?') else ';'} see: {command} --help"


def _known_form(body: str) -> str | None:
    for pattern, sentence in _FORMS:
        found = re.search(pattern, body)
        if found:
            parts = {name: text or "" for name, text in found.groupdict().items()}
            parts["choices"] = parts.get("choices", "").replace("'", "").strip(", ")
            parts["kind"] = _spell_kind(parts.get("kind", ""))
            return sentence.format(**parts)
    return None


def _spell_kind(kind: str) -> str:
    """Say what a flag takes, which the parser writes as ``{None}|{FLOAT FLOAT}``.

    Example:
        >>> _spell_kind("{None}|FLOAT"), _spell_kind("{None}|{FLOAT FLOAT}"), _spell_kind("[INT [INT ...]]")
        ('a number', '2 numbers', 'whole numbers')
    """
    words = re.findall(r"[A-Z]+", kind.replace("None", ""))
    if not words or words[0] not in _KINDS:
        return kind
    article, name = _KINDS[words[0]]
    if "..." in kind:
        return f"{name}s"
    return f"{article} {name}" if len(words) == 1 else f"{len(words)} {name}s"


def _unknown(body: str) -> str | None:
    """Explain words that the command does not know, with the nearest that it does."""
    found = re.search(r"Unrecognized options: (.*)", body)
    if not found:
        return None
    words = found[1].split(", ")
    word = next((word for word in words if word.startswith("-")), words[0])
    actions = re.search(r"Available subcommands: (.*)", body)
    known = actions[1].split(", ") if actions else re.findall(r"^(--[\w-]+)", body, re.MULTILINE)
    near = get_close_matches(word, known, n=1) or ([] if actions else known[:1])
    if near:
        return f"{word} is not known; did you mean {near[0]}?"
    return f"{word} is not known" + (f"; choose one of {', '.join(known)}" if known else "")
