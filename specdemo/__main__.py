"""python -m specdemo"""

from specdemo.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
