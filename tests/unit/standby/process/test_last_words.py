"""What the log of a container that never registered tells of its end."""

from __future__ import annotations

import pytest

from standby.process.last_words import LastWords, last_words

BEGUN = "the witness of process 7: it has begun"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), LastWords()),
        (("bash: python: No such file",), LastWords(text="bash: python: No such file")),
        (
            (BEGUN, 'the witness of process 7: {"status":-9,"oom_kills":0}'),
            LastWords(is_from_outside=True, text="it was ended by SIGKILL"),
        ),
        (
            (BEGUN, 'the witness of process 7: {"status":-9,"oom_kills":1}'),
            LastWords(text="it was ended by SIGKILL"),
        ),
        (
            (BEGUN, "no port", 'the witness of process 7: {"status":2,"oom_kills":0}'),
            LastWords(text="no port; it ended with exit code 2"),
        ),
        (
            (BEGUN, 'cut offthe witness of process 7: {"status":-11,"oom_kills":0}'),
            LastWords(text="cut off; it was ended by SIGSEGV"),
        ),
        (
            (BEGUN, "importing"),
            LastWords(is_from_outside=True, text="importing; it was ended together with its witness"),
        ),
        (
            (BEGUN, "bye", "the witness of process 7: it has ended as it was asked to"),
            LastWords(is_from_outside=True, text="bye; it was asked to end"),
        ),
        ((BEGUN, 'the witness of process 7: {"stat'), LastWords()),
    ],
)
def test_last_words(lines: tuple[str, ...], words: LastWords) -> None:
    assert last_words(lines) == words
