"""Every parser, on a small file of its format."""

from __future__ import annotations

import bz2
import gzip
import json
import random

import pytest
from lm_packages import bible, zipped

from experiments.corpora import parsers


def only(found):
    (document,) = found
    return document


def test_whole_files_also_compressed_ones():
    assert list(parsers.whole("Ä".encode())) == ["Ä"]
    assert list(parsers.whole(gzip.compress(b"\xef\xbb\xbfa"))) == ["a"]
    assert list(parsers.whole("Ä".encode("latin-1"))) == [], "no UTF-8, no document"


def test_articles_of_a_wiki():
    def page(title, text, more=""):
        return f"<page><title>{title}</title>{more}<text bytes='1'>{text}</text></page>"

    dump = "<mediawiki>" + "".join(
        [
            page("Old", "", "<redirect title='New' />"),
            page("Old too", "#REDIRECT [[New]]"),
            page("Talk:Bees", "chat"),
            page("Bees &amp;amp; wasps", "&#039;&#039;Bees&#039;&#039; &amp;ndash; [[insect]]s."),
        ]
    )
    assert list(parsers.wiki_pages(bz2.compress(dump.encode()))) == [
        "Bees &amp; wasps\n\nBees – insects."  # noqa: RUF001
    ]


@pytest.mark.parametrize(
    ("markup", "plain"),
    [
        ("a<!-- x -->b", "ab"),
        ("a<ref name=x/> b<ref>{{cite|{{x}}}}</ref>.", "a b."),
        ("{{Infobox\n|a={{b|c}}\n}}\nText", "Text"),
        ("{|\n|a\n{|\n|b\n|}\n|}\nText", "Text"),
        ("[[File:a.png|thumb|A [[cat|small cat]] here]]Text [[Category:X]]", "Text"),
        ("a [[b (c)|d]] and [[e]]s", "a d and es"),
        ("see [http://x.y/z the page] now", "see the page now"),
        ("'''A''' (; {{x}}born) {{convert|20|km|mi}} high", "A (born) 20 km high"),
        ("''{{lang|fr|chat}}'' ({{lang-la|cattus}})", "chat (cattus)"),
        ("Intro\n== One ==\ntext\n=== Two ===\nmore\n==See also==\n* x",
         "Intro\nOne\ntext\nTwo\nmore"),
        ("x<sup>2</sup><br /> &nbsp;y", "x2 \xa0y"),
        ("a<math>\\frac{1}{2}</math>b", "ab"),
    ],
)  # fmt: skip
def test_markup_of_a_wiki(markup, plain):
    assert parsers.plain_wiki(markup) == plain


TABLE = 'id,text\n1,"one, and\ntwo"\n2,three\n'


@pytest.mark.parametrize(
    "data", [TABLE.encode(), bz2.compress(TABLE.encode()), zipped({"a.csv": TABLE.encode()})]
)
def test_a_column_of_a_table(data):
    assert list(parsers.rows(data, "text")) == ["one, and\ntwo", "three"]
    assert list(parsers.films(data)) == ["one, and\ntwo", "three"]


def table(*texts):
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    return ("text\n" + "\n".join(quoted) + "\n").encode()


def test_news_with_lost_signs_are_left_out_or_repaired():
    texts = ['He didn"t say "no".   New paragraph.', 'DeVos"?focus', "Cafe?s", "what?? no"]
    assert list(parsers.articles(table(*texts))) == ['He didn\'t say "no".\n\nNew paragraph.']


def test_tweets():
    assert list(parsers.tweets(table("R&amp;D &gt; all http://a.b"))) == ["R&D > all http://a.b"]


def test_speeches_without_short_ones_and_blanks_before_stops():
    long = "Das ist ( wie gesagt ) gut . . Ja ! " + "Wir gehen weiter . " * 12
    found = only(parsers.speeches(table("Kurz .", long)))
    assert found.startswith("Das ist (wie gesagt) gut. Ja! Wir gehen weiter. Wir")


def test_chapters_of_the_bible():
    files = bible({"Jude": [["Jude, the servant. ", "Mercy."], ["More."]]})
    assert list(parsers.chapters(only(files.values()))) == [
        "Jude 1\n\nJude, the servant.\nMercy.",
        "Jude 2\n\nMore.",
    ]


def test_translated_messages():
    catalogue = r"""
# Translators: someone <a@b.c>
msgid ""
msgstr ""
"Language: de\n"

#, python-format
msgid "Yes"
msgstr "Ja"

msgid "two"
msgid_plural "many"
msgstr[0] "Zwei \"Zeilen\"\n"
"und mehr"
msgstr[1] "Viele"

#, fuzzy
msgid "Old"
msgstr "Alt"

msgid "Untranslated"
msgstr ""
""".lstrip()
    assert list(parsers.translations(catalogue.encode())) == ['Ja\nZwei "Zeilen"\nund mehr\nViele']
    assert list(parsers.translations(b'msgid ""\nmsgstr ""\n')) == []


def test_tunes():
    book = "% a book\nX:1\r\nT:One\r\nZ:by me@x.y\r\nK:D\r\nabc|\r\n\r\nX: 2\nT:Two\nK:G\ngab|\n"
    assert [tune.replace("\r", "").strip() for tune in parsers.tunes(book.encode())] == [
        "X:1\nT:One\nK:D\nabc|",
        "X: 2\nT:Two\nK:G\ngab|",
    ]


def test_diseases_with_what_is_below_them():
    data = b"""<ICD10CM.tabular><chapter><section id="A"><desc>Gut</desc>
    <diag><name>A00</name><desc>Cholera</desc><excludes1><note>typhoid (A01)</note></excludes1>
      <diag><name>A00.0</name><desc>Classical</desc>
        <inclusionTerm><note>old</note></inclusionTerm></diag></diag>
    <diag><name>A01</name><desc>Typhoid</desc></diag>
    </section></chapter></ICD10CM.tabular>"""
    assert list(parsers.diseases(data)) == [
        "A00 Cholera\n  Excludes: typhoid (A01)\n  A00.0 Classical\n    old",
        "A01 Typhoid",
    ]


def test_mail_without_people():
    message = (
        "From: a@b.org\nTo: c@d.org\nSubject: Re: [List] ships of bob@y.org\n"
        "Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: 8bit\n\n"
        "ask ann.b@x.org, caf\xe9\n> quoted\n"
    )
    text = "Re: [List] ships of <mail>\n\nask <mail>, café\n> quoted"
    for end in ("-- \nAnn", "_" * 30 + "\nlist", "-" * 24 + " Yahoo! Groups Sponsor\nad"):
        found = only(parsers.mail((message + end + "\n").encode("latin-1")))
        assert found.strip() == text
    assert list(parsers.mail(message.replace("text/plain", "text/html").encode("latin-1"))) == []
    odd = message.replace("iso-8859-1", "x-nobody-knows")
    assert list(parsers.mail(odd.encode("latin-1"))) == []


def test_licences():
    data = json.dumps({"name": "MIT License", "licenseText": "Permission"}).encode()
    assert list(parsers.licence(data)) == ["MIT License\n\nPermission"]


def test_entries_of_a_dictionary():
    text = (
        "\n\n00-database-short\n     Words\n\nhead%%%second\n\n   <web> What it is.\n\n"
        "   More.\n\nnext\n\n   Another.\n"
    )
    assert list(parsers.entries(gzip.compress(text.encode()))) == [
        "head, second\n\n   <web> What it is.\n\n   More.",
        "next\n\n   Another.\n",
    ]


def test_latex_documents_without_fragments_and_tables():
    rng = random.Random(0)
    body = " ".join(f"$x_{rng.randint(0, 999)}$" for _ in range(300))
    paper = "\\documentclass{article}\n\\begin{document}\n" + body + "\n\\end{document}\n"
    assert list(parsers.papers(paper.encode())) == [paper]
    assert list(parsers.papers(gzip.compress(paper.encode()))) == [paper]
    assert list(parsers.papers(body.encode())) == []
    assert list(parsers.papers(paper.replace(body, "\\item x\n" * 999).encode())) == []
    long = " ".join(f"$x_{rng.randint(0, 10**9)}$" for _ in range(12_000))
    assert list(parsers.papers(paper.replace(body, long).encode())) == [], "no one wrote that"
