"""Words that the writing reward looks for, and how a text is cut into words.

A word is a run of letters and digits of any script, with single apostrophes or hyphens inside it ("don't",
"well-known" and "so-called" are one word each), compared without regard to case. Everything else only separates
words. Scripts without spaces between words, or with vowels as separate marks, are cut by the same rule, which
counts their words only roughly.
"""

from __future__ import annotations

import re
import unicodedata

_LETTERS = r"(?:[^\W_][\u0300-\u036f]*)+"  # with the accents that no single code point holds
_WORD = re.compile(rf"{_LETTERS}(?:['-]{_LETTERS})*")
_TYPOGRAPHIC = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "‐": "-", "‑": "-"})


def words(text: str) -> list[str]:
    """The words of a text in order, in lower case; "É" in one or in two code points is the same letter."""
    return _WORD.findall(unicodedata.normalize("NFC", text).translate(_TYPOGRAPHIC).casefold())


TRANSITIONS: dict[str, tuple[str, ...]] = {
    "addition": (
        "additionally", "also", "besides", "furthermore", "in addition", "moreover", "on top of that", "what is more",
    ),
    "sequence": (
        "afterwards", "at first", "eventually", "finally", "firstly", "meanwhile", "next", "secondly", "subsequently",
        "then", "thirdly", "to begin with",
    ),
    "contrast": (
        "but", "by contrast", "conversely", "however", "in contrast", "instead", "on the contrary",
        "on the other hand", "whereas", "yet",
    ),
    "concession": (
        "admittedly", "although", "despite", "even so", "even though", "in spite of", "nevertheless", "nonetheless",
        "regardless", "though",
    ),
    "cause": ("because", "because of", "due to", "for this reason", "given that", "owing to", "thanks to"),
    "result": (
        "accordingly", "as a consequence", "as a result", "consequently", "hence", "therefore", "thereby", "thus",
    ),
    "condition": ("as long as", "in case", "in that case", "otherwise", "provided that", "unless"),
    "purpose": ("in order to", "so as to", "so that", "to this end", "with this in mind"),
    "example": ("for example", "for instance", "in particular", "namely", "specifically", "such as"),
    "similarity": ("by the same token", "in the same way", "just as", "likewise", "similarly"),
    "emphasis": ("above all", "certainly", "clearly", "especially", "in fact", "indeed", "notably", "of course"),
    "conclusion": (
        "all in all", "altogether", "in brief", "in conclusion", "in short", "in sum", "in summary", "overall",
        "to conclude", "to sum up", "ultimately",
    ),
}  # fmt: skip
"""Twelve categories of transition words and phrases; each phrase belongs to one category only."""


def transition_categories(text: str) -> set[str]:
    """The categories of which the text uses at least one phrase.

    A phrase matches whole words in a row, whatever stands between them: "thus" is not in "enthusiasm".
    """
    padded = f" {' '.join(words(text))} "
    return {category for category, phrases in TRANSITIONS.items() if any(f" {phrase} " in padded for phrase in phrases)}


_STOP_WORDS = """
    a about above after again against all am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each either else
    ever every few for from further had hadn't has hasn't have haven't having he he'd he'll he's her here hers herself
    him himself his how i i'd i'll i'm i've if in into is isn't it it'd it'll it's its itself just let's may me might
    more most much must my myself neither no nor not now of off on once only or other our ours ourselves out over own
    per quite rather same shall she she'd she'll she's should shouldn't so some such than that that's the their theirs
    them themselves then there there's these they they'd they'll they're they've this those through to too under until
    up upon us very was wasn't we we'd we'll we're we've were weren't what what's when where whether which while who
    who's whom whose why will with within without won't would wouldn't yes you you'd you'll you're you've your yours
    yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English words that carry no topic of their own; two texts that share only these overlap in nothing."""


def content_words(text: str) -> set[str]:
    """The distinct words of a text that are no stop words."""
    return set(words(text)) - STOP_WORDS
