"""`python -m tatara`."""

from tatara.cli import main

raise SystemExit(main())
