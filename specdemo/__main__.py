"""python -m specdemo"""

from specdemo.cli.interrupts import program

if __name__ == "__main__":
    program()
