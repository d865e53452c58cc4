"""Record a release's dependencies: their hashes, their licences and a bill of materials.

python tools/supply_chain.py

asks pip what it would install for this package on this platform, under constraints.txt, and writes
requirements/release.txt, docs/licences.md and docs/sbom.cdx.json (CycloneDX 1.6). Nothing is installed.
The source of the packages is not recorded, because the hashes identify them.
"""

import json
import platform
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import metadata as installed
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
LICENCES = {  # SPDX names of classifiers
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "Python Software Foundation License": "PSF-2.0",
}


class Package(NamedTuple):
    """A package that a release needs."""

    name: str
    version: str
    sha256: str
    licence: str
    summary: str


def needed() -> list[Package]:
    """Return every package that pip would install, sorted by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
    command += ["--report", "-", "--constraint", str(ROOT / "constraints.txt"), *project["dependencies"]]
    pinned = re.search(r"(?m)^torch==.*$", (ROOT / "constraints.txt").read_text())
    if pinned:  # an exact version, because a looser requirement would bring the GPU build
        command.append(pinned[0])
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (pip itself)
    found = []
    for entry in json.loads(done.stdout)["install"]:
        metadata = entry["metadata"]
        digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
        about = metadata.get("summary", "")
        found.append(Package(metadata["name"], metadata["version"], digest, licence(metadata), about))
    return sorted(found, key=lambda package: package.name.lower())


def licence(metadata: dict[str, Any]) -> str:
    """Return a package's declared licence, as an SPDX name if possible."""
    stated = metadata.get("license_expression")
    with suppress(PackageNotFoundError):  # pip's report leaves out newer metadata fields
        stated = stated or installed(metadata["name"]).get("License-Expression")
    if stated:
        return str(stated)
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get("classifier", ()) if "License" in line]
    known = [LICENCES.get(line, line) for line in classifiers]
    text = (metadata.get("license") or "").strip()
    return " AND ".join(known) or (text if text and len(text) < 40 else "see the package")


def release(packages: list[Package]) -> str:
    """Return a file for ``pip install --require-hashes``."""
    lines = [
        f"# What a release needs, on {platform.system()} {platform.machine()} with Python "
        f"{sys.version_info.major}.{sys.version_info.minor}: made by tools/supply_chain.py.",
        "# pip install --require-hashes --no-deps --requirement requirements/release.txt",
    ]
    for package in packages:
        lines += [f"{package.name}=={package.version} \\", f"    --hash=sha256:{package.sha256}"]
    return "\n".join(lines) + "\n"


def page(packages: list[Package]) -> str:
    """Return the licences as a page."""
    intro = "This page lists the packages that `pip` installs with UltraLIF, and their licences."
    lines = ["# Licences of UltraLIF's dependencies", "", f"{intro} UltraLIF itself is under Apache-2.0.", ""]
    lines += ["| package | version | licence | what it is |", "|---|---|---|---|"]
    lines += [f"| {p.name} | {p.version} | {p.licence} | {p.summary.replace('|', '/')} |" for p in packages]
    return "\n".join([*lines, ""])


def bill(packages: list[Package]) -> dict[str, Any]:
    """Return the bill of materials."""
    version = re.search(r'__version__ = "(.*)"', (ROOT / "src" / "ultralif" / "__init__.py").read_text())
    own = {
        "type": "library",
        "name": "ultralif",
        "version": version[1] if version else "",
        "bom-ref": "ultralif",
    }
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{p.name.lower()}@{p.version}",
            "name": p.name,
            "version": p.version,
            "purl": f"pkg:pypi/{p.name.lower()}@{p.version}",
            "hashes": [{"alg": "SHA-256", "content": p.sha256}],
            "licenses": [{"license": {"name": p.licence}}],
        }
        for p in packages
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": "ultralif", "dependsOn": [entry["bom-ref"] for entry in components]}],
    }


def main() -> None:
    """Write the three files."""
    packages = needed()
    (ROOT / "requirements").mkdir(exist_ok=True)
    (ROOT / "requirements" / "release.txt").write_text(release(packages))
    (ROOT / "docs" / "licences.md").write_text(page(packages))
    (ROOT / "docs" / "sbom.cdx.json").write_text(json.dumps(bill(packages), indent=1) + "\n")


if __name__ == "__main__":
    main()
