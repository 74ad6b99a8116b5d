"""Deterministic story generator: plot grammars told in a small world state.

Every story has a hero with a pronoun, a home, a friend of the other gender (so that "he" and "she" stay
clear), an object and a plot. Plots are compressible: the same plot can take one sentence or nine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from world import World, article, make_world

STOP_CHANCE = 0.25  # chance that a story ends after each sentence; makes story lengths nearly memoryless
MAX_SENTENCES = 9
FOLDER = Path(__file__).parent
Grammar = dict[str, dict[str, list[str]]]


@dataclass
class Document:
    """One training text: a story, with the request that asks for it unless it stands alone."""

    prompt: str
    text: str
    system: str = ""


def read_grammar(path: Path) -> Grammar:
    """Read a grammar file into {section: {key: templates}}."""
    grammar: Grammar = {}
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            section = grammar.setdefault(line[2:], {})
        elif line and not line.startswith(";"):
            key, text = line.split(": ", 1)
            section.setdefault(key, []).append(text)
    return grammar


PLOTS = read_grammar(FOLDER / "plots.txt")
PARTS = read_grammar(FOLDER / "parts.txt")
BRIDGES = {state: PLOTS.pop(f"bridge_{state} {state}") for state in ("found", "has", "wants")}


def draw_length(rng: random.Random) -> int:
    """Draw a number of sentences: after each one the story stops with the same chance."""
    while True:
        count = 1
        while rng.random() > STOP_CHANCE:
            count += 1
        if count <= MAX_SENTENCES:
            return count


def tell_one(world: World, templates: list[str], needs: str = "") -> list[str]:
    """Tell one fitting template out of a list (none if nothing fits)."""
    options = [t for t in templates if world.fits(t) and needs in t]
    return [world.tell(world.rng.choice(options))] if options else []


def tell_opening(world: World, state: str, needs: str = "") -> str:
    """Tell the first sentence of a story whose object is in the given state."""
    section = PARTS["openings"] if world.hero.name else PARTS["nameless"]
    options = [t for t in section[state] if needs in t] or section[state]
    world.opening = True
    text = world.tell(world.rng.choice(options))
    world.opening = False
    return text


def tell_plot(world: World, state: str, count: int) -> list[str]:
    """Tell `count` sentences that follow the opening and form a whole plot."""
    rng = world.rng
    if state == "none" and rng.random() < 0.35:
        state = rng.choice(["found", "has", "wants"])
        return tell_bridge(world, state, count)
    plot = PLOTS[rng.choice([name for name in PLOTS if name.endswith(f" {state}")])]
    if count == 1:
        minis = PARTS["minis"]["all"] if state == "none" and rng.random() < 0.4 else plot["mini"]
        return tell_one(world, minis)
    return tell_arc(world, plot, count)


def tell_arc(world: World, plot: dict[str, list[str]], count: int) -> list[str]:
    """Tell start, some middle beats in order, and an end; sometimes with a closing thought."""
    coda = count > 2 and world.rng.random() < 0.25
    sentences = tell_one(world, plot["start"])
    middle = max(0, count - 2 - coda)
    own = min(len(plot["mid"]), sum(world.rng.random() < 0.8 for _ in range(middle)))
    beats = [plot["mid"][at] for at in sorted(world.rng.sample(range(len(plot["mid"])), own))]
    for _ in range(middle - own):  # the other places go to fillers, which fit into any plot
        beats.insert(world.rng.randint(0, len(beats)), "")
    for beat in beats:
        filler = not beat or not world.fits(beat)
        sentences += tell_one(world, PARTS["fillers"]["all"] if filler else [beat])
    sentences += tell_one(world, plot["end"])
    return sentences + (tell_one(world, PARTS["codas"]["all"]) if coda else [])


def prompt_openings(count: int, seed: int = 7, held_out: bool = True) -> Iterator[str]:
    """Yield distinct one-sentence story openings, by default with heroes that training never sees."""
    rng, seen = random.Random(seed), set[str]()
    while len(seen) < count:
        state = rng.choice(["none", "none", "none", "found", "has", "wants"])
        text = tell_opening(make_world(rng, held_out), state)
        if text not in seen:
            seen.add(text)
            yield text


def about_phrase(world: World, extra: str) -> str:
    """Describe the wanted story in a request: the hero and sometimes an object, a friend or a place."""
    rng, hero = world.rng, world.hero
    plain, described = article(hero.kind), f"{article(hero.adjective)} {hero.kind}"
    forms = [plain, described]
    if hero.name:
        name = hero.name
        forms += [f"{name} the {hero.kind}", f"{plain} named {name}", f"{described} called {name}"]
    thing = article(f"{world.thing_adjective} {world.thing}" if rng.random() < 0.75 else world.thing)
    friend = article(world.friend.kind)
    extras = {"o": f" and {thing}", "k": f" and {friend}", "p": world.tell(" {p}"), "": ""}
    return rng.choice(forms) + extras[extra]


def ask(world: World, kind: str, **values: str) -> str:
    """Draw a request form and fill it."""
    form = world.rng.choice(PARTS["ask"][kind])
    for key, value in values.items():
        form = form.replace(f"{{{key}}}", value)
    return form


def write_document(world: World, kind: str) -> Document:
    """A request for a whole story, its opening or its rest, with the story that obeys it."""
    rng = world.rng
    extra = rng.choice(["", "o", "o", "o", "k", "p"])
    prompt = ask(world, kind, about=about_phrase(world, extra))
    state = rng.choice(["found", "has", "wants"]) if extra == "o" else "none"
    count, needs = draw_length(rng), f"{{{extra}}}" if extra else ""
    if kind == "rest":
        told = tell_plot(world, state, count) if extra != "o" else tell_bridge(world, state, count)
    elif count == 1:
        told = tell_mini(world, state, needs)
    else:
        told = [tell_opening(world, state, needs), *tell_plot(world, state, count - 1)]
        told = told[:-1] if kind == "open" and len(told) > 2 else told
    return Document(prompt, " ".join(told))


def tell_bridge(world: World, state: str, count: int) -> list[str]:
    """Tell a plot that first has to bring the object into the story."""
    if count == 1:
        return tell_one(world, BRIDGES[state]["mini"])
    return tell_one(world, BRIDGES[state]["start"]) + tell_plot(world, state, count - 1)


def tell_mini(world: World, state: str, needs: str) -> list[str]:
    """Tell a whole story in one sentence."""
    if state != "none":
        return tell_one(world, BRIDGES[state]["mini"])
    plots = [text for name, plot in PLOTS.items() if name.endswith(" none") for text in plot["mini"]]
    return tell_one(world, plots + PARTS["minis"]["all"], needs) or tell_one(world, plots)


def describe_document(world: World, kind: str) -> Document:
    """A request to describe a sight, with a description of one to eight sentences."""
    prompt, part = world.tell(ask(world, kind)), PARTS["describe"]
    told = tell_one(world, part["first"])
    for _ in range(draw_length(world.rng) - 1):
        told += tell_one(world, part["mid"])
    return Document(prompt, " ".join(told))


def tell_story(world: World) -> list[str]:
    """Tell an opening and its plot; some stories go on with a second adventure after the end."""
    state = world.rng.choice(["none", "none", "none", "found", "has", "wants"])
    told = [tell_opening(world, state), *tell_plot(world, state, draw_length(world.rng))]
    if world.rng.random() < 0.06:
        told += tell_plot(world, "none", draw_length(world.rng))
    return told


def plain_document(world: World, kind: str) -> Document:
    """A story without any request."""
    return Document("", " ".join(tell_story(world)))


def cut_inside(world: World, kind: str, text: list[str], first: int) -> Document:
    """Cut a story inside its first sentence, as in "One morning, Tom the baker found"."""
    cut = world.rng.randint(min(3, first - 1), first - 1)
    form = world.rng.choice([form for form in PARTS["ask"][kind] if form.endswith("{text}")])
    return Document(form.replace("{text}", " ".join(text[:cut])), " ".join(text[cut:]))


def continue_document(world: World, kind: str) -> Document:
    """A story cut in two: the first part stands in the request, the rest answers it."""
    told = tell_story(world)
    if world.rng.random() < 0.15:
        return cut_inside(world, kind, " ".join(told).split(), len(told[0].split()))
    cut = min(len(told) - 1, world.rng.choice([1, 1, 1, 1, 2, 3, 4]))
    if len(told) <= 4 and world.rng.random() < 0.15:
        cut = len(told)
        told += tell_plot(world, "none", draw_length(world.rng))
    return Document(ask(world, kind, text=" ".join(told[:cut])), " ".join(told[cut:]))


MAKERS = [
    (0.46, "plain", plain_document), (0.20, "write", write_document), (0.17, "cont", continue_document),
    (0.05, "open", write_document), (0.05, "rest", write_document), (0.07, "desc", describe_document),
]  # fmt: skip


def documents(count: int, seed: int) -> Iterator[Document]:
    """Yield the training documents of one seed."""
    rng = random.Random(seed)
    weights = [weight for weight, _, _ in MAKERS]
    for _ in range(count):
        _, kind, maker = rng.choices(MAKERS, weights)[0]
        world = make_world(rng)
        if rng.random() < 0.1:
            world.hero.name = ""
        document = maker(world, kind)
        if document.text:
            system = rng.choice(PARTS["ask"]["system"]) if document.prompt and rng.random() < 0.08 else ""
            yield Document(document.prompt, document.text, system)
