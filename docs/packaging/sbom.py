"""Writes the software bill of materials of a wheel: SPDX 2.3, as JSON.

    python docs/packaging/sbom.py dist/jupyter_gpushare-0.2.0-py3-none-any.whl build/sbom.spdx.json

It lists the wheel with its hash, the npm packages that are built into the JupyterLab extension
(named by JupyterLab's builder in `third-party-licenses.json`), and the Python packages that the
wheel requires, with the extra that asks for them. The same wheel gives the same document: its time
is SOURCE_DATE_EPOCH, or else the time of the files in the wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from spdx_tools.common.spdx_licensing import spdx_licensing
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    Package,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
from spdx_tools.spdx.writer.write_anything import write_file

LICENSES = "static/third-party-licenses.json"
WHEEL_ID = "SPDXRef-wheel"
NAMESPACE = "https://spdx.org/spdxdocs"
DEVELOPMENT = ('extra == "dev"', 'extra == "test"')
"""Markers of what only work on this project needs."""


def metadata_of(wheel: ZipFile) -> Message:
    """METADATA of the wheel."""
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return BytesParser().parsebytes(wheel.read(name))


def bundled(wheel: ZipFile) -> list[Package]:
    """The npm packages in the built extension."""
    name = next(name for name in wheel.namelist() if name.endswith(LICENSES))
    found = sorted(json.loads(wheel.read(name))["packages"], key=lambda one: one["name"])
    return [
        package(
            f"SPDXRef-npm-{place}",
            one["name"],
            one["versionInfo"],
            f"pkg:npm/{one['name'].replace('@', '%40')}@{one['versionInfo']}",
            one["licenseId"],
        )
        for place, one in enumerate(found, start=1)
    ]


def required(metadata: Message) -> list[tuple[Package, Requirement]]:
    """The Python packages that the wheel requires; an extra of its own is not one of them."""
    own = canonicalize_name(metadata["Name"])
    wanted = sorted({str(Requirement(text)) for text in metadata.get_all("Requires-Dist", [])})
    parsed = [Requirement(text) for text in wanted]
    return [
        (
            package(
                f"SPDXRef-python-{place}",
                one.name,
                None,
                f"pkg:pypi/{canonicalize_name(one.name)}",
                None,
                comment=str(one),
            ),
            one,
        )
        for place, one in enumerate(parsed, start=1)
        if canonicalize_name(one.name) != own and str(one.marker) not in DEVELOPMENT
    ]


def package(
    spdx_id: str,
    name: str,
    version: str | None,
    purl: str,
    license_id: str | None,
    *,
    comment: str | None = None,
) -> Package:
    """A package of others, with its address in the registry."""
    reference = ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", purl)
    return Package(
        spdx_id,
        name,
        SpdxNoAssertion(),
        version=version,
        files_analyzed=False,
        license_declared=spdx_licensing.parse(license_id) if license_id else SpdxNoAssertion(),
        external_references=[reference],
        comment=comment,
    )


def own_package(path: Path, metadata: Message) -> Package:
    """The wheel itself."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Package(
        WHEEL_ID,
        metadata["Name"],
        SpdxNoAssertion(),
        version=metadata["Version"],
        file_name=path.name,
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, digest)],
        license_declared=spdx_licensing.parse(metadata["License-Expression"]),
        external_references=[
            ExternalPackageRef(
                ExternalPackageRefCategory.PACKAGE_MANAGER,
                "purl",
                f"pkg:pypi/{canonicalize_name(metadata['Name'])}@{metadata['Version']}",
            )
        ],
    )


def created(wheel: ZipFile) -> datetime:
    """SOURCE_DATE_EPOCH, or the newest file of the wheel."""
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return datetime.fromtimestamp(int(epoch), UTC).replace(tzinfo=None)
    newest = max(one.date_time for one in wheel.infolist())
    return datetime(*newest)  # noqa: DTZ001 - SPDX takes UTC without a zone


def document(path: Path) -> Document:
    """The bill of materials of one wheel."""
    with ZipFile(path) as wheel:
        metadata, parts, time = metadata_of(wheel), bundled(wheel), created(wheel)
    own, python = own_package(path, metadata), required(metadata)
    name = path.name.removesuffix(".whl")
    info = CreationInfo(
        spdx_version="SPDX-2.3",
        spdx_id="SPDXRef-DOCUMENT",
        name=name,
        document_namespace=f"{NAMESPACE}/{name}-{own.checksums[0].value[:16]}",
        creators=[Actor(ActorType.TOOL, "jupyter-gpushare docs/packaging/sbom.py")],
        created=time,
    )
    links = [Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, WHEEL_ID)]
    links += [Relationship(WHEEL_ID, RelationshipType.CONTAINS, one.spdx_id) for one in parts]
    links += [_needs(one.spdx_id, requirement) for one, requirement in python]
    packages = [own, *parts, *(one for one, _ in python)]
    return Document(info, packages=packages, relationships=links)


def _needs(spdx_id: str, requirement: Requirement) -> Relationship:
    """What belongs to an extra is optional."""
    if requirement.marker and "extra" in str(requirement.marker):
        return Relationship(spdx_id, RelationshipType.OPTIONAL_DEPENDENCY_OF, WHEEL_ID)
    return Relationship(WHEEL_ID, RelationshipType.DEPENDS_ON, spdx_id)


def main(wheel: str, target: str) -> None:
    """Raises SystemExit with the problems if the document is not valid SPDX."""
    made = document(Path(wheel))
    if problems := [one.validation_message for one in validate_full_spdx_document(made)]:
        raise SystemExit("\n".join(problems))
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    write_file(made, target, validate=False)
    print(f"{target}: {len(made.packages)} packages")


if __name__ == "__main__":
    main(*sys.argv[1:])
