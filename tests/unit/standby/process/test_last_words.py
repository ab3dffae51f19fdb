"""What the log of a container that never registered tells of its end."""

from __future__ import annotations

from standby.process.last_words import LastWords, last_words

WITNESS = "the witness of process 7:"
BEGUN = f"{WITNESS} it has begun"


def test_last_words() -> None:
    for lines, words in (
        ((), LastWords()),
        (("bash: python: No such file",), LastWords(text="bash: python: No such file")),
        (
            (BEGUN, f'{WITNESS} {{"status":-9,"oom_kills":0}}'),
            LastWords(is_from_outside=True, text="it was ended by SIGKILL"),
        ),
        (
            (BEGUN, f'{WITNESS} {{"status":-9,"oom_kills":1}}'),
            LastWords(text="it was ended by SIGKILL"),
        ),
        (
            (BEGUN, "no port", f'{WITNESS} {{"status":2,"oom_kills":0}}'),
            LastWords(text="no port; it ended with exit code 2"),
        ),
        (
            (BEGUN, f'cut off{WITNESS} {{"status":-11,"oom_kills":0}}'),
            LastWords(text="cut off; it was ended by SIGSEGV"),
        ),
        (
            (BEGUN, "importing"),
            LastWords(is_from_outside=True, text="importing; it was ended together with its witness"),
        ),
        (
            (BEGUN, "bye", f"{WITNESS} it has ended as it was asked to"),
            LastWords(is_from_outside=True, text="bye; it was asked to end"),
        ),
        ((BEGUN, f'{WITNESS} {{"stat'), LastWords()),
    ):
        assert last_words(lines) == words, lines
