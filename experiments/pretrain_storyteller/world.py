"""The world state of one story and how it fills sentence templates.

The world remembers whom and what the reader has met, so that a first mention introduces ("Mia the fox",
"a silver key") and later mentions refer back ("she", "the key").
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass, field

import words

HELD_OUT_SHARE = 25  # one in this many name-and-species pairs never appears as a hero in training
PRONOUNS = {"f": ("she", "her", "her", "herself"), "m": ("he", "him", "his", "himself")}
MOST = words.listed("smallest bravest kindest cleverest laziest happiest oldest funniest")
FEELINGS = words.listed("happy sad tired bored curious hungry excited worried lonely cheerful proud restless calm")
LATER = ["the next day", "later", "soon after", "that evening", "a week later", "the next morning", "then"]
FRUIT = words.listed("apples plums pears cherries pumpkins berries")
CHOICE = re.compile(r"\[([^\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")


def article(text: str) -> str:
    """Put "a" or "an" in front of a noun phrase."""
    return ("an " if text[0] in "aeiou" else "a ") + text


def capital(text: str) -> str:
    """Start a sentence with a capital letter, also behind an opening quote."""
    at = 1 if text.startswith('"') else 0
    return text[:at] + text[at : at + 1].upper() + text[at + 1 :]


def is_held_out(name: str, species: str) -> bool:
    """Tell whether this hero is reserved for prompts that training never sees."""
    return zlib.crc32(f"{name}/{species}".encode()) % HELD_OUT_SHARE == 0


@dataclass
class Person:
    """One character: name (empty for "the fox"), kind, gender and how it was described."""

    name: str
    kind: str
    gender: str
    adjective: str
    known: bool = False

    def short(self, rng: random.Random) -> str:
        """A later mention: the name, or "the fox"."""
        if not self.name or rng.random() < 0.15:
            return f"the {self.kind}"
        return self.name

    def full(self, rng: random.Random) -> str:
        """A first mention that tells name and kind."""
        if not self.name:
            return f"{article(self.adjective)} {self.kind}"
        described = f"{article(self.adjective)} {self.kind} named {self.name}"
        return described if rng.random() < 0.3 else f"{self.name} the {self.kind}"

    def mention(self, rng: random.Random) -> str:
        """Name the character in the way that fits what the reader already knows."""
        text = self.short(rng) if self.known else self.full(rng)
        self.known = True
        return text


def invent_name(rng: random.Random) -> str:
    """Make an unknown name from syllables, so that the model learns to copy names it has never seen."""
    starts, ends = words.listed("b d f g h j k l m n p r s t v w z br dr tr kl"), words.listed("a e i o u")
    name = rng.choice(starts) + rng.choice(ends) + rng.choice(starts[:17]) + rng.choice(ends)
    return (name + rng.choice(["", "", "n", "l", "r", "s"])).capitalize()


def pick_name(rng: random.Random, gender: str) -> str:
    """Choose a known name, or sometimes an invented one."""
    known = words.GIRLS if gender == "f" else words.BOYS
    return invent_name(rng) if rng.random() < 0.12 else rng.choice(known)


def pick_kind(rng: random.Random, gender: str) -> str:
    """Choose an animal (mostly) or a job that fits the gender."""
    wrong = words.MEN if gender == "f" else words.WOMEN
    table = words.ANIMALS if rng.random() < 0.62 else words.JOBS
    return rng.choice([kind for kind in table if kind not in wrong])


def pick_person(rng: random.Random, gender: str, adjectives: list[str]) -> Person:
    """Draw one character."""
    return Person(pick_name(rng, gender), pick_kind(rng, gender), gender, rng.choice(adjectives))


@dataclass
class World:
    """The state of one story: who, where, what, and what the reader has been told so far."""

    rng: random.Random
    hero: Person
    friend: Person
    place: str
    thing: str
    thing_adjective: str
    food: str
    spots: list[str]
    sight: str
    sight_adjective: str
    thing_known: bool = False
    time_used: bool = False
    hero_recent: bool = False
    used: set[str] = field(default_factory=set)

    def fits(self, text: str) -> bool:
        """Reject beats that are used up or that point to somebody the reader has not met."""
        slots = SLOT.findall(text)
        hero = next((s for s in slots if s in ("h", "n", "he", "him", "his", "himself")), "h")
        friend = next((s for s in slots if s in ("k", "khe", "kim", "kis")), "k")
        together = re.search(r"\b([Tt]hey|[Tt]hem|[Bb]oth)\b", text) and "{k}" not in text
        met_hero = self.hero.known or hero in ("h", "n") or "an_adj" in slots
        met_friend = self.friend.known or (friend == "k" and not together)
        return text not in self.used and met_hero and met_friend and (self.thing_known or "to" not in slots)

    def tell(self, text: str) -> str:
        """Render one template as a sentence and remember what it told."""
        self.used.add(text)
        text = CHOICE.sub(lambda m: self.rng.choice(m[1].split("|")), text)
        self.pronoun_ok = self.hero_recent and self.hero.known and "{h} and {k}" not in text
        sentence = SLOT.sub(lambda m: self.fill(m[1]), text)
        two_strangers = "{k}" in text and not self.hero.name
        told_hero = any(s in text for s in ("{h}", "{n}", "{he}", "{his}", "{him}", "{an_adj}"))
        self.hero_recent = told_hero and not two_strangers
        return capital(sentence)

    def fill(self, slot: str) -> str:
        """Give the text of one slot."""
        smart = getattr(self, f"slot_{slot}", None)
        if smart:
            return smart()
        kind_facts = (words.ANIMALS | words.JOBS)[self.hero.kind]
        facts = words.PLACES[self.place]
        simple = {
            "s": self.hero.kind, "a": self.friend.kind, "pl": self.place, "p": f"{facts[0]} {self.place}",
            "spot": self.spots[0], "spot2": self.spots[1], "food": self.food, "a_s": article(self.hero.kind),
            "move": kind_facts[0], "body": kind_facts[2], "w": self.rng.choice(words.WEATHERS),
            "det": self.rng.choice(facts[1]), "hobby": self.rng.choice(words.HOBBIES), "it": "it",
            "fruit": self.rng.choice(FRUIT), "feel": self.rng.choice(FEELINGS),
            "where": words.SIGHTS[self.sight][0], "see": words.SIGHTS[self.sight][1],
            "hear": words.SIGHTS[self.sight][2], "most": self.rng.choice(MOST),
        }  # fmt: skip
        return simple[slot] if slot in simple else self.person_slot(slot)

    def person_slot(self, slot: str) -> str:
        """Pronouns of the hero and of the friend."""
        hero, friend = PRONOUNS[self.hero.gender], PRONOUNS[self.friend.gender]
        names = ("he", "him", "his", "himself", "khe", "kim", "kis")
        return (hero + friend)[names.index(slot)]

    def slot_h(self) -> str:
        """The hero as subject: introduced in full, later by name or pronoun."""
        if self.pronoun_ok and self.rng.random() < 0.45:
            return PRONOUNS[self.hero.gender][0]
        return self.hero.mention(self.rng)

    def slot_n(self) -> str:
        """The hero by name."""
        bare = self.hero.name or f"the {self.hero.kind}"
        first, self.hero.known = not self.hero.known, True
        return bare if self.opening or not first else self.hero.full(self.rng)

    opening = False
    pronoun_ok = False

    def slot_k(self) -> str:
        """The friend, introduced at the first mention."""
        return self.friend.mention(self.rng)

    def slot_an_adj(self) -> str:
        """The hero's adjective with an article; the noun follows in the template."""
        self.hero.known = True
        return article(self.hero.adjective)

    def slot_body_a(self) -> str:
        """A body detail with an article where it needs one."""
        body = (words.ANIMALS | words.JOBS)[self.hero.kind][2]
        return body if body.endswith("s") and not body.endswith("dress") else article(body)

    def slot_o(self) -> str:
        """The object: indefinite at first, definite later."""
        if self.thing_known:
            return self.slot_to()
        self.thing_known = True
        return article(f"{self.thing_adjective} {self.thing}")

    def slot_to(self) -> str:
        """The known object."""
        return f"the {self.thing}" if self.rng.random() < 0.6 else self.slot_o2()

    def slot_o2(self) -> str:
        """The object with its adjective."""
        self.thing_known = True
        return f"the {self.thing_adjective} {self.thing}"

    def slot_sight(self) -> str:
        """The sight to describe, without an article."""
        return f"{self.sight_adjective} {self.sight}"

    def slot_a_sight(self) -> str:
        """The sight to describe, with an article."""
        return article(self.slot_sight())

    def slot_use(self) -> str:
        """What the object does."""
        return words.OBJECTS[self.thing]

    def slot_t(self) -> str:
        """A time phrase; later ones follow the first."""
        first, self.time_used = not self.time_used, True
        return self.rng.choice(words.TIMES if first else LATER)


def make_world(rng: random.Random, held_out: bool = False) -> World:
    """Draw the state of a new story; `held_out` selects the heroes that training never sees."""
    while True:
        gender = rng.choice("fm")
        hero = pick_person(rng, gender, words.HERO_ADJECTIVES)
        friend = pick_person(rng, "m" if gender == "f" else "f", words.FRIEND_ADJECTIVES)
        known = hero.name in words.GIRLS + words.BOYS
        allowed = is_held_out(hero.name, hero.kind) == held_out and (known or not held_out)
        if allowed and friend.kind != hero.kind:
            break
    friend.name = "" if rng.random() < 0.4 else friend.name
    place, thing = rng.choice(list(words.PLACES)), rng.choice(list(words.OBJECTS))
    facts = words.PLACES[place]
    while any(thing in spot for spot in facts[2]):  # nobody finds a basket in a basket
        thing = rng.choice(list(words.OBJECTS))
    food = (words.ANIMALS | words.JOBS)[hero.kind][1]
    spots = rng.sample(facts[2], 2)
    thing_adjective, sight_adjective = rng.choice(words.OBJECT_ADJECTIVES), rng.choice(words.SIGHT_ADJECTIVES)
    sight = rng.choice(list(words.SIGHTS))
    return World(rng, hero, friend, place, thing, thing_adjective, food, spots, sight, sight_adjective)
