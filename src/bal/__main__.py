"""python -m bal."""

from bal.cli import main

if __name__ == "__main__":
    main()
