"""Helpers for parallel training processes."""

import os
from multiprocessing import parent_process
from threading import Thread

__all__ = ["end_with_parent"]


def end_with_parent() -> None:
    """End this process when its parent ends, even if killed, so that it does not keep a core and memory."""
    parent = parent_process()
    assert parent is not None, "this is the first process"

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
