"""The static site as a SCORM 1.2 package: one activity, which reports to a learning platform that all lessons are done."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

CONTENT = "http://www.imsproject.org/xsd/imscp_rootv1p1p2"
ADL = "http://www.adlnet.org/xsd/adlcp_rootv1p2"
SCHEMAS = f"{CONTENT} imscp_rootv1p1p2.xsd {ADL} adlcp_rootv1p2.xsd"
START = "index.html"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same site gives the same package


def scorm_package(folder: Path, title: str) -> bytes:
    """A folder with a site, and the manifest that a platform reads, as a zip archive."""
    names = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(zipfile.ZipInfo("imsmanifest.xml", _DATE), manifest(title, names))
        for name in names:
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(info, (folder / name).read_bytes())
    return out.getvalue()


def manifest(title: str, names: list[str]) -> bytes:
    """`imsmanifest.xml` of a package with one activity, which consists of these files (SCORM 1.2, content aggregation)."""
    spaces = {
        "xmlns": CONTENT,
        "xmlns:adlcp": ADL,
        "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
        "xsi:schemaLocation": SCHEMAS,
    }
    root = Element("manifest", {"identifier": "specdemo", "version": "1.2", **spaces})
    about = SubElement(root, "metadata")
    SubElement(about, "schema").text = "ADL SCORM"
    SubElement(about, "schemaversion").text = "1.2"
    organizations = SubElement(root, "organizations", {"default": "course"})
    course = SubElement(organizations, "organization", {"identifier": "course"})
    SubElement(course, "title").text = title
    item = SubElement(course, "item", {"identifier": "lessons", "identifierref": "site"})
    SubElement(item, "title").text = title
    resources = SubElement(root, "resources")
    site = SubElement(
        resources,
        "resource",
        {"identifier": "site", "type": "webcontent", "adlcp:scormtype": "sco", "href": START},
    )
    for name in names:
        SubElement(site, "file", {"href": name})
    whole: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return whole
