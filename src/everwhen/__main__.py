"""`python -m everwhen`: the program `everwhen`."""

import sys

from everwhen.cli.program import main

sys.exit(main())
