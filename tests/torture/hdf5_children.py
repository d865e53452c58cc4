"""Read mutations of an HDF5 file, a child for each, as the library's own readers do; started by readers.py.

python hdf5_children.py READER SOUND_FILE SEED COUNT prints how many children read, refused and crashed. This
process holds little but HDF5, so that a fork is cheap and the readers' limits of memory mean what they say.
"""

import importlib.util
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from mutate import mutated

PACKAGE = Path(__file__).parents[2] / "src" / "ultralif"
READERS = {"shd": PACKAGE / "data" / "shd_reader.py", "nir": PACKAGE / "export" / "nir_file.py"}


def main(reader: str, sound: Path, seed: int, count: int) -> None:
    spec = importlib.util.spec_from_file_location(reader, READERS[reader])
    module = importlib.util.module_from_spec(spec)
    sys.modules[reader] = module
    spec.loader.exec_module(module)
    rng, data, codes = random.Random(seed), sound.read_bytes(), Counter()  # noqa: S311 (damage)
    path = sound.with_name(f"{reader}-{seed}.mutated")
    for _ in range(count):
        path.write_bytes(mutated(data, data, rng))
        pid = os.fork()
        if pid == 0:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            signal.alarm(60)
            os._exit(_read(module, path))
        codes[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])] += 1
    print(json.dumps(codes))


def _read(module: Any, path: Path) -> int:
    """Do what the reader does when it is started by itself."""
    if hasattr(module, "_main"):
        return module._main(str(path))
    try:
        module.main(path)
    except Exception:  # it says why, and exits with 1
        return 1
    return 0


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
