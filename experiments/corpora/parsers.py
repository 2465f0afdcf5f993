"""Split the files of packages into documents: one small function for each format."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from html import unescape
from xml.etree import ElementTree

from experiments.corpora.texts import decode, ratio

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")


def whole(data: bytes) -> Iterator[str]:
    """Take the file, decompressed if need be, as one document."""
    text = decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    if text is not None:
        yield text


def wiki_pages(data: bytes) -> Iterator[str]:
    """Yield the articles of a compressed wiki dump as plain text."""
    dump = bz2.decompress(data).decode("utf-8", "replace")
    for page in re.findall(r"<page>(.*?)</page>", dump, re.DOTALL):
        title = re.search(r"<title>(.*?)</title>", page)
        body = re.search(r"<text[^>]*>(.*?)</text>", page, re.DOTALL)
        if title and body and "<redirect" not in page and ":" not in title[1]:
            text = plain_wiki(unescape(body[1]))
            if not text.lstrip().upper().startswith("#REDIRECT"):
                yield f"{unescape(title[1])}\n\n{text}"


def plain_wiki(text: str) -> str:
    """Strip wiki markup of tables, templates, notes and links.

    >>> plain_wiki("'''Bees''' {{a|{{b}}}}are [[insect]]s<ref>x</ref> of [[order|an order]].")
    'Bees are insects of an order.'
    """
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"<ref[^>]*?/>", "", text)
    text = re.sub(
        r"<(ref|math|gallery|timeline|imagemap|score|source|syntaxhighlight)\b.*?</\1>", "", text,
        flags=re.DOTALL,
    )  # fmt: skip
    # keep measures and foreign words, which are in templates
    text = re.sub(r"\{\{convert\|([^{}|]*)\|([^{}|]*)[^{}]*\}\}", r"\1 \2", text)
    text = re.sub(r"\{\{lang(?:-[^{}|]*|\|[^{}|]*)\|([^{}|]*)[^{}]*\}\}", r"\1", text)
    for inner in (r"\{\{[^{}]*\}\}", r"\{\|(?:(?!\{\|).)*?\|\}"):
        count = 1
        while count:  # innermost first
            text, count = re.subn(inner, "", text, flags=re.DOTALL)
    # links inside captions go before the pictures themselves
    text = re.sub(r"\[\[(?![A-Za-z-]+:)(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", text)
    text = re.sub(r"\[\[[^\[\]]*\]\]", "", text)
    text = re.sub(r"\[(?:https?|ftp)?:?//[^\s\]]+ ?([^\]]*)\]", r"\1", text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>", "", text)
    text = re.sub(r"'{2,}", "", text)
    text = re.split(r"^==+ *(?:References|See also|External links|Notes|Further reading|Sources|"
                    r"Bibliography|Footnotes) *==+ *$", text, flags=re.MULTILINE)[0]  # fmt: skip
    text = re.sub(r"^(=+) *(.*?) *\1 *$", r"\2", text, flags=re.MULTILINE)
    text = re.sub(r"\((?:[;,\s]|or)+", "(", text)  # left over from templates
    text = re.sub(r" *\( *\)", "", text)
    return unescape(re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \xa0]{2,}", " ", text))).strip()


def rows(data: bytes, column: str) -> Iterator[str]:
    """Yield a column of a CSV table, which may be compressed or in a zip."""
    if data[:2] == b"PK":
        archive = zipfile.ZipFile(io.BytesIO(data))
        with archive, archive.open(archive.namelist()[0]) as table:
            data = table.read()
    elif data[:3] == b"BZh":
        data = bz2.decompress(data)
    for row in csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")):
        yield row[column] or ""


def articles(data: bytes) -> Iterator[str]:
    """Yield news articles with apostrophes and paragraphs restored.

    Articles that lost other characters are left out.
    """
    for text in rows(data, "text"):
        if not re.search(r'"\?|\?\?|[A-Za-z]\?[a-z]', text):
            text = re.sub(r"(?<=[a-z])\"(?=(?:t|s|re|ve|ll|d|m)\b)", "'", text)
            yield re.sub(r" {3,}", "\n\n", text)


def tweets(data: bytes) -> Iterator[str]:
    """Yield tweets with HTML entities decoded."""
    for text in rows(data, "text"):
        yield unescape(text)


def films(data: bytes) -> Iterator[str]:
    """Yield the plot and the review of each film."""
    yield from rows(data, "text")


def speeches(data: bytes) -> Iterator[str]:
    """Yield parliament speeches but the shortest, without spaces before punctuation."""
    for text in rows(data, "text"):
        if len(text) >= 200:
            text = re.sub(r"([.!?])(?: *\.)+", r"\1", text)  # applause stood between them
            yield re.sub(r" +([.,;:!?)])", r"\1", text).replace("( ", "(")


def chapters(data: bytes) -> Iterator[str]:
    """Yield a book of the Bible by chapters."""
    for book in json.loads(data)["_Bible__books"]:
        for chapter in book["_Book__chapters"]["py/tuple"]:
            verses = [
                verse["_Verse__text"].strip() for verse in chapter["_Chapter__verses"]["py/tuple"]
            ]
            yield f"{book['_Book__title']} {chapter['_Chapter__number']}\n\n" + "\n".join(verses)


def translations(data: bytes) -> Iterator[str]:
    """Join the translated messages of a gettext catalogue into one document."""
    text = decode(data) or ""
    found = []
    for entry in re.split(r"\n\s*\n", text)[1:]:  # the first entry describes the file
        for _, message in re.findall(
            r'^(msgstr(?:\[\d\])?) ((?:"[^\n]*"\n?)+)', entry, re.MULTILINE
        ):
            message = "".join(re.findall(r'"(.*)"', message))
            message = message.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
            if message.strip() and "#, fuzzy" not in entry:
                found.append(message.strip())
    if found:
        yield "\n".join(found)


def tunes(data: bytes) -> Iterator[str]:
    """Yield the tunes of a book in ABC notation, without their transcribers' names."""
    text = re.sub(r"^[ZF]:.*\n", "", decode(data) or "", flags=re.MULTILINE)
    yield from re.split(r"^(?=X: *\d)", text, flags=re.MULTILINE)[1:]


def diseases(data: bytes) -> Iterator[str]:
    """Yield the categories of a classification of diseases, each with its subcategories."""
    kinds = {
        "includes": "Includes: ", "inclusionTerm": "", "excludes1": "Excludes: ",
        "excludes2": "Excludes: ", "codeFirst": "Code first: ", "codeAlso": "Code also: ",
        "useAdditionalCode": "Code also: ",
    }  # fmt: skip

    def lines(node: ElementTree.Element, depth: int) -> Iterator[str]:
        blank = "  " * depth
        yield f"{blank}{node.findtext('name')} {node.findtext('desc')}"
        for kind, label in kinds.items():
            for note in node.findall(f"{kind}/note"):
                yield f"{blank}  {label}{note.text}"
        for child in node.findall("diag"):
            yield from lines(child, depth + 1)

    for section in ElementTree.fromstring(data).iter("section"):
        for category in section.findall("diag"):
            yield "\n".join(lines(category, 0))


def mail(data: bytes) -> Iterator[str]:
    """Yield the subject and text of a message, without sender, recipients and addresses."""
    message = message_from_bytes(data, policy=policy.default)
    assert isinstance(message, EmailMessage)
    body = message.get_body(("plain",))
    if body is None:
        return
    try:
        text, subject = body.get_content(), str(message["subject"] or "")
    except (LookupError, ValueError, UnicodeError):  # unknown charsets
        return
    text, subject = (ADDRESS.sub("<mail>", part) for part in (text, subject))
    # cut signatures and the footers of lists and providers
    text = re.split(r"^(?:_{20,}|-- ?|-{15,}.*(?:Yahoo|ThinkGeek|sponsor).*)$", text,
                    flags=re.MULTILINE)[0]  # fmt: skip
    yield f"{subject}\n\n{text}" if subject else text


def licence(data: bytes) -> Iterator[str]:
    """Yield the name and text of a software licence."""
    found = json.loads(data)
    yield f"{found['name']}\n\n{found.get('licenseText', '')}"


def entries(data: bytes) -> Iterator[str]:
    """Yield dictionary entries: a headword at the margin, its meaning indented."""
    text = decode(gzip.decompress(data)) or ""
    for entry in re.split(r"\n\n(?=\S)", text):
        head, _, body = entry.partition("\n\n")
        if body.startswith("   ") and not head.startswith("00-database"):
            yield f"{head.replace(chr(10), ' ').replace('%%%', ', ')}\n\n{body}"


def papers(data: bytes) -> Iterator[str]:
    """Yield complete LaTeX documents; fragments and tables of symbols are left out."""
    for text in whole(data):
        if "\\begin{document}" in text and len(text) < 150_000 and ratio(text) > 0.2:
            yield text
