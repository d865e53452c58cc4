"""``python -m ultralif`` is the command ``ultralif``."""

import sys

from ultralif.cli import main

sys.exit(main())
