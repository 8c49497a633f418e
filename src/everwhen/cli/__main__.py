"""`python -m everwhen.cli.program`."""

import sys

from everwhen.cli.program import main

sys.exit(main())
