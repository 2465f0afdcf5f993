"""A tokenizer that other processes can import: bytes, slow and telling who works if asked."""

from __future__ import annotations

import os
import time


def slow_bytes(text):
    folder = os.environ.get("TEST_WORKERS")
    if folder:
        open(os.path.join(folder, str(os.getpid())), "w").close()
        time.sleep(0.01)
    return list(text.encode())
