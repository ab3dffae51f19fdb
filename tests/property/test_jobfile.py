"""What a job file says, whichever characters it has: taken as it is written, or refused; never changed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from appmaster.cli.shared.jobfile import load
from standby.errors import BadConfiguration

ENVIRONMENT = {"STANDFAST_KAFKA": "k:1", "STANDFAST_ZOOKEEPER": "z:1"}

#: Of numbers, times, truth values and nulls of every YAML.
CHARACTERS = "0123456789_.:+-~=<oxbeEinfNaTrueZyYsO"


@given(
    st.text(CHARACTERS, min_size=1, max_size=12), st.sampled_from(["kafka.client.id", "task.stores.version"])
)
def test_unquoted_text_is_taken_as_written_or_refused(value: str, key: str) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "job.yaml")
        path.write_text(
            f"job.name: a\ntask: {{inputs: [in], step: 'm:f'}}\n{key}: {value}\n", encoding="utf-8"
        )
        try:
            taken = load(path, [], ENVIRONMENT).flat.get(key)
        except BadConfiguration:
            return
    assert taken == value
