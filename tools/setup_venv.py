"""Makes a virtual environment with pinned packages, in which `import tatara` finds this checkout.

usage: setup_venv.py DIRECTORY REQUIREMENTS
Does nothing when the directory holds what the requirements ask for already.
"""

from __future__ import annotations

import hashlib
import pathlib
import subprocess
import sys
import urllib.request
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH_CPU = "https://download.pytorch.org/whl/cpu"


def fingerprint(requirements: pathlib.Path) -> str:
    """Changes with any requirements file and with the Python."""
    texts = "".join(path.read_text() for path in sorted(ROOT.glob("requirements*.txt")))
    return hashlib.sha256(f"{sys.version}|{requirements.name}|{texts}".encode()).hexdigest()


def reachable(url: str) -> bool:
    """Tells whether the server answers within five seconds."""
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def main() -> None:
    """Sets up the environment named on the command line."""
    directory = pathlib.Path(sys.argv[1]).resolve()
    requirements = ROOT / sys.argv[2]
    stamp = directory / ".tatara-setup"
    wanted = fingerprint(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    python = directory / "bin" / "python"
    version = [str(python), "-c", "import sys; sys.exit(sys.argv[1] != sys.version)", sys.version]
    if not python.exists() or subprocess.run(version, check=False).returncode != 0:
        print(f"making {directory.name} with Python {sys.version.split()[0]}", flush=True)
        venv.create(directory, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
    # The CPU build of torch where its index answers: PyPI's own build brings gigabytes of CUDA that is not needed.
    if requirements.name == "requirements.txt" and reachable(f"{TORCH_CPU}/torch/"):
        command += ["--extra-index-url", TORCH_CPU]
    print(f"installing {requirements.name}", flush=True)
    subprocess.run(command, check=True)
    found = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    (pathlib.Path(found.stdout.strip()) / "tatara-checkout.pth").write_text(f"{ROOT / 'python'}\n")
    stamp.write_text(wanted)


if __name__ == "__main__":
    main()
