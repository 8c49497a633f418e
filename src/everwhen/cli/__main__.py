"""`python -m everwhen.cli`."""

import sys

from everwhen.cli.program import main

sys.exit(main())
