"""`python -m cordwood`: the same as the `cordwood` command."""

from cordwood.surfaces.cli.entry import main

if __name__ == "__main__":
    main()
