"""``python -m semidp`` is ``semidp``."""

from semidp.cli import main

if __name__ == "__main__":
    main()
