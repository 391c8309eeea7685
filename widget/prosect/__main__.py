"""``python -m prosect``: the same as the ``prosect`` command."""

import sys

from prosect.cli import main

sys.exit(main())
