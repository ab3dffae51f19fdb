"""``python -m embedded.jars``; see `embedded.jars.cache`."""

from __future__ import annotations

import sys

from embedded.jars.cache import main

if __name__ == "__main__":
    sys.exit(main())
