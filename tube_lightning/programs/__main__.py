"""The command where it is not installed as such: python -m tube_lightning.programs NAME ..."""

from tube_lightning.programs.command import main

if __name__ == "__main__":
    main()
