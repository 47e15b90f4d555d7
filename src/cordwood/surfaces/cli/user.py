"""The user that runs a command, for the records of what it did."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """The name of the user, also under sudo, cron and in containers, where no variable has it.

    It is the number of the user where nothing has a name for it.
    """
    for variable in ("SUDO_USER", "USER", "LOGNAME"):
        if name := os.environ.get(variable):
            return name
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
