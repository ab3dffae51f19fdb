"""The examples of a page, run as a container runs a job's step."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pyarrow as pa

from standby.kernel.ports import Database
from standby.replica.outbox import Outbox
from standby.replica.store.overlay import BatchState

_DOCS = Path(__file__).parents[3] / "docs"


def examples(page: str) -> dict[str, str]:
    """Return the code of each example of a page by its heading."""
    text = (_DOCS / page).read_text(encoding="utf-8")
    return dict(re.findall(r"### Example: (.+?)\n\n```python\n(.+?)```", text, re.DOTALL))


def load(code: str, directory: Path) -> ModuleType:
    """Return an example as a job's module, imported from a file."""
    path = directory / "example_of_the_page.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The types of a dataclass are looked up in its module there.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run(
    module: ModuleType, store: str, database: Database, rows: pa.Table, topics: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Run the step on a batch; return topic, key and value of each output."""
    state, out = BatchState([store], database), Outbox(topics)
    module.step(rows, state, out)
    state.end()
    database.write(state.changes.items())
    return [(each.topic, (each.key or b"").decode(), (each.value or b"").decode()) for each in out.records]
