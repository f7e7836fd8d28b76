"""python -m specdemo"""

from specdemo.cli.parser import main

if __name__ == "__main__":
    raise SystemExit(main())
