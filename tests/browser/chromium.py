"""Find a Chromium or Chrome for the browser tests, and install Debian's where that is possible.

``python tests/browser/chromium.py`` prints the path of the browser, or says in one sentence what
is missing. Nothing here needs the development environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

#: Debian's packages: the browser, and fonts that hold Chinese, Japanese and Korean text and emoji.
PACKAGES = ("chromium", "fonts-noto-cjk", "fonts-noto-color-emoji")

MISSING = (
    "The browser tests need Chromium or Chrome: install one so that it is found on PATH, "
    "or set PROSECT_BROWSER to its path."
)


def find() -> str | None:
    """Return the path of an installed browser: ``PROSECT_BROWSER``, else one on PATH."""
    named = os.environ.get("PROSECT_BROWSER")
    if named:
        return shutil.which(named)
    return next((path for path in map(shutil.which, NAMES) if path), None)


def _administrator() -> list[str] | None:
    """Return what to put before a command that needs root, or None where root is out of reach."""
    if os.geteuid() == 0:
        return []
    if not shutil.which("sudo"):
        return None
    asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def _missing_fonts() -> bool:
    """Tell whether a character of Japanese or an emoji would be drawn as an empty box."""
    if not shutil.which("fc-list"):
        return True
    for wanted in (":lang=ja", ":lang=zh-cn", ":charset=1f469"):
        listed = subprocess.run(["fc-list", wanted, "family"], capture_output=True, check=False)
        if not listed.stdout.strip():
            return True
    return False


def install() -> None:
    """Install what is missing with apt-get, as far as this user and this system allow."""
    wanted = [] if find() else [PACKAGES[0]]
    if _missing_fonts():
        wanted += PACKAGES[1:]
    root = _administrator() if shutil.which("apt-get") else None
    if not wanted or root is None or os.environ.get("PROSECT_BROWSER"):
        return
    print("Installing " + " ".join(wanted) + " ...", file=sys.stderr, flush=True)
    quiet = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]
    environment = [*root, "env", "DEBIAN_FRONTEND=noninteractive"]
    flags = ["install", "-y", "--no-install-recommends", *wanted]
    for words in (["update"], flags):
        subprocess.run(
            [*environment, *quiet, *words],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=False,
        )


def main() -> int:
    """Print the path of the browser, installing it first where it is missing and may be."""
    install()
    path = find()
    if path is None:
        print(MISSING, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
