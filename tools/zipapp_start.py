"""Start of fabtui.pyz: unpack once into the cache folder, then run from there.

Libraries with machine code cannot be imported from a zip file. The folder is named by the content of the archive and by
the interpreter. It is a virtual environment, so that processes which fabtui starts find the same packages.

tools/build_zipapp.py writes this file into the archive. It runs on Python 3.6 and later, to report that it is too old.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import zipfile
from typing import NoReturn

VERSION = "{}.{}".format(*sys.version_info[:2])
TAG = "cp" + VERSION.replace(".", "")
#: The interpreter itself, if this one belongs to a virtual environment.
BASE = getattr(sys, "_base_executable", "") or sys.executable


def fail(text: str) -> NoReturn:
    """Exit with code 2 and one line."""
    sys.stderr.write(f"fabtui: error: {text}\n")
    sys.exit(2)


def unpack(archive: zipfile.ZipFile, folder: str) -> None:
    """Unpack the packages for this interpreter; a process that does the same at the same time does no harm."""
    parent = os.path.dirname(folder)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    sys.stderr.write(f"fabtui: unpacking into {folder}, once\n")
    made = tempfile.mkdtemp(prefix=".unpacking-", dir=parent)
    try:
        site = os.path.join(made, "lib", "python" + VERSION, "site-packages")
        for name in archive.namelist():
            group, _, rest = name.partition("/")
            if group in ("any", TAG):
                path = os.path.join(site, rest)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(archive.read(name))
        os.mkdir(os.path.join(made, "bin"))
        os.symlink(BASE, os.path.join(made, "bin", "python3"))
        with open(os.path.join(made, "pyvenv.cfg"), "w") as settings:
            settings.write(f"home = {os.path.dirname(BASE)}\ninclude-system-site-packages = false\n")
        os.rename(made, folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        # The other process was first.
        if not os.path.isdir(folder):
            raise


def main() -> NoReturn:
    with zipfile.ZipFile(os.path.dirname(os.path.abspath(__file__))) as archive:
        about = json.loads(archive.read("about.json").decode())
        machine = os.uname().machine
        if TAG not in about["tags"] or machine != about["machine"]:
            fits = f"Python {', '.join('3.' + tag[3:] for tag in about['tags'])} on Linux {about['machine']}"
            fail(f"{archive.filename} needs {fits}, this is Python {VERSION} on {machine}; try: pipx install fabtui")
        content = hashlib.sha256(f"{about['content']} {BASE}".encode()).hexdigest()[:12]
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(cache, "fabtui", f"{about['version']}-{TAG}-{content}")
        try:
            if not os.path.isdir(folder):
                unpack(archive, folder)
            if os.stat(folder).st_uid != os.getuid():
                fail(f"{folder} belongs to another user; set XDG_CACHE_HOME to a folder of yours")
        except OSError as error:
            fail(f"cannot unpack into {folder}: {error.strerror}; set XDG_CACHE_HOME to a folder with 150 MB")
    python = os.path.join(folder, "bin", "python3")
    # -P: modules in the working directory are not imported.
    os.execv(python, [python, "-P", "-m", "fabtui", *sys.argv[1:]])  # noqa: S606 - an argument list


if __name__ == "__main__":
    main()
