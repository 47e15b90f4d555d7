"""The S3 server of tests: versitygw, built from the Go module proxy once.

Its version, and the hashes of all that it is built from, are in `versitygw/go.mod` and `go.sum`.
`python -m support.object_storage.program` builds it, as `make setup` does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from support.built_programs import (
    ProgramBuildError,
    ProgramUnavailableError,
    built,
    fetch,
    need,
    run,
)

_SOURCE: Final = Path(__file__).resolve().parent / "versitygw"
_PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw"
_PROGRAM: Final = "versitygw"


def versitygw() -> Path:
    """The program, built if it is not there yet.

    Needs Go, and for the build the Go module proxy.

    Raises:
        ProgramUnavailableError: what is missing, in words.
        ProgramBuildError: the build failed.
    """
    return built(_SOURCE, _build, kind="servers") / _PROGRAM


def _build(source: Path, target: Path) -> None:
    need("go", "install Go")
    fetch(["go", "mod", "download"], source)
    # Without symbols it takes half of the space.
    flags = ["-mod=readonly", "-ldflags=-s -w"]
    run(["go", "build", *flags, "-o", str(target / _PROGRAM), _PACKAGE], source)


def main() -> None:
    """Builds the program; ends with an error text where it cannot be built."""
    try:
        versitygw()
    except (ProgramUnavailableError, ProgramBuildError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
