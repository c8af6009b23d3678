"""``python -m cleave.cli`` is the command ``cleave``."""

import sys

from cleave.cli import main

sys.exit(main())
