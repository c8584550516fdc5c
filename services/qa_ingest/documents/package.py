"""The ZIP package around Word and Excel files, opened within limits, and its XML without anything that XML can hide."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from copy import copy
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

MAX_MEMBERS = 2_000
MAX_MEMBER_BYTES = 64 * 1024 * 1024
MAX_TOTAL_BYTES = 256 * 1024 * 1024
MAX_RATIO = 200
SMALL = 1024 * 1024
"""A member below this may be compressed as well as it likes."""
_OLE = bytes.fromhex("d0cf11e0a1b11ae1")
_DOCTYPE = re.compile(rb"<!(?:DOCTYPE|ENTITY)")
_HAS_A_TYPE = "{} has a document type or entities, which no office program writes"
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):(.*)", re.IGNORECASE | re.DOTALL)
_RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


class Refused(ValueError):
    """A document that is not read: a code for machines, a message for people, and the line where text has lines."""

    def __init__(self, code: str, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.line = line


class Package:
    """An Office Open XML package. Every member is bounded before its first byte is unpacked."""

    def __init__(self, content: bytes) -> None:
        if content.startswith(_OLE):
            raise Refused(
                "encrypted_or_legacy", "protected by a password, or of Office 97; save it anew as .docx or .xlsx"
            )
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            infos = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, OSError) as error:
            raise Refused("no_package", "not a ZIP package, or a damaged one") from error
        self._members = _checked(infos)

    def names(self) -> Iterator[str]:
        """Every part's name, without a leading slash."""
        yield from self._members

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """The bytes of a part. Raises `Refused`."""
        info = self._members.get(name)
        if info is None:
            raise Refused("no_part", f"the package has no {name}")
        try:
            with self._zip.open(info) as part:
                content = part.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as error:
            raise Refused("damaged", f"{name} cannot be unpacked") from error
        if len(content) > info.file_size:
            raise Refused("zip_bomb", f"{name} unpacks to more than it says")
        return content

    def xml(self, name: str) -> Element:
        """The root of an XML part, without a document type, entities or anything external. Raises `Refused`."""
        try:
            root: Element = fromstring(self.read(name), forbid_dtd=True)
        except DefusedXmlException as error:
            raise Refused("document_type", _HAS_A_TYPE.format(name)) from error
        except (ParseError, LookupError, ValueError) as error:
            raise Refused("bad_xml", f"{name} is no well-formed XML") from error
        return root

    def refuse_active(self) -> None:
        """What no question table needs: macros, document types, and whatever would be fetched from elsewhere."""
        for name in self._members:
            if posixpath.basename(name).casefold().startswith("vbaproject"):
                raise Refused("macros", "it holds macros; save it without them, as .docx or .xlsx")
            if name.endswith(".rels"):
                self._refuse_fetching(name)
            elif name.endswith(".xml") and _DOCTYPE.search(self.read(name).replace(b"\0", b"")):
                raise Refused("document_type", _HAS_A_TYPE.format(name))

    def _refuse_fetching(self, name: str) -> None:
        for relation in self.xml(name).iter(_RELATIONS):
            kind, target = relation.get("Type", ""), relation.get("Target", "")
            if relation.get("TargetMode") == "External" and not kind.endswith("/hyperlink") and _is_remote(target):
                what = kind.rsplit("/", 1)[-1][:40]
                raise Refused("external_reference", f"{name} fetches its {what} from another computer; remove the link")

    def with_parts(self, changed: Mapping[str, bytes]) -> bytes:
        """The package with other bytes in these parts; every other part, their order and their dates stay."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as made:
            made.comment = self._zip.comment
            for name, info in self._members.items():
                made.writestr(copy(info), changed.get(name) or self.read(name))
        return buffer.getvalue()

    def relations(self, name: str) -> Mapping[str, str]:
        """The targets of a part's relations by their ids: part names, or addresses where they lead outside."""
        folder, file = posixpath.split(name)
        path = f"{folder}/_rels/{file}.rels" if folder else f"_rels/{file}.rels"
        if path not in self:
            return {}
        found = {}
        for relation in self.xml(path).iter(_RELATIONS):
            target = relation.get("Target", "")
            if relation.get("TargetMode") != "External":
                target = target[1:] if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            found[relation.get("Id", "")] = target
        return found


def _is_remote(target: str) -> bool:
    """Would another computer be asked? A path of this one, as of a template, is only looked for here."""
    target = target.strip().replace("\\", "/")
    found = _ADDRESS.match(target)
    if found is None or found[1].casefold() == "file":
        path = found[2] if found else target
        return (path.startswith("//") and not path.startswith("///")) or path.startswith(("////", "/////"))
    return found[1].casefold() not in ("data", "mailto", "cid")


def _checked(infos: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    if len(infos) > MAX_MEMBERS:
        raise Refused("zip_bomb", f"{len(infos):,} parts; at most {MAX_MEMBERS:,} are read")
    total = 0
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        if info.flag_bits & 1:
            raise Refused("encrypted_or_legacy", "protected by a password")
        if info.filename.startswith(("/", "\\")) or ".." in info.filename.replace("\\", "/").split("/"):
            raise Refused("bad_path", "a part whose name leads out of the package")
        total += info.file_size
        if info.file_size > MAX_MEMBER_BYTES or total > MAX_TOTAL_BYTES:
            raise Refused("zip_bomb", f"it unpacks to more than {MAX_TOTAL_BYTES // 1024**2} MiB")
        if info.file_size > SMALL and info.file_size > MAX_RATIO * max(info.compress_size, 1):
            raise Refused("zip_bomb", f"a part is packed more than {MAX_RATIO} to 1")
        if info.filename in members:
            raise Refused("damaged", "two parts of one name")
        members[info.filename] = info
    return members
