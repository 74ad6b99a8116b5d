"""Word lists of the story world: heroes, places, objects and small details.

Every entry carries the few facts that keep a story coherent (where a place hides things, what an object
does when it is used, how an animal moves), so that the model can learn to stay consistent.
"""

from __future__ import annotations


def listed(text: str) -> list[str]:
    """Split words written in one string."""
    return text.split()


GIRLS = listed(
    "Mia Lila Nora Rosa Ivy Hana Tilda Wren Clara Elsa Juna Pia Maya Ada Ruby Suki Bella Zoe Olga Fern Daisy "
    "Nell Kira Luna Amy Greta Molly Poppy Sana Tess Vera Willa Yuki Anna Ella Iris Lena Nina Dora Hazel"
)
BOYS = listed(
    "Tom Oto Finn Leo Max Ben Sam Hugo Oskar Milo Bruno Felix Gus Jack Kai Luca Noah Pip Rafi Theo Toby "
    "Wilf Arlo Emil Otis Jonas Karl Nico Paul Remy Simon Tariq Udo Victor Yan Zeno Alf Bert Casper Dan"
)

# species: (how it moves, favourite food, body detail)
ANIMALS: dict[str, tuple[str, str, str]] = {
    "fox": ("ran", "blackberries", "red tail"),
    "rabbit": ("hopped", "carrots", "long ears"),
    "bear": ("walked", "honey", "big paws"),
    "mouse": ("ran", "cheese", "tiny paws"),
    "owl": ("flew", "seed cake", "round eyes"),
    "dragon": ("flew", "hot soup", "green wings"),
    "cat": ("crept", "warm milk", "soft paws"),
    "dog": ("ran", "bones", "wagging tail"),
    "frog": ("hopped", "plum pie", "green legs"),
    "hedgehog": ("walked", "apples", "sharp spines"),
    "squirrel": ("ran", "nuts", "fluffy tail"),
    "badger": ("walked", "mushrooms", "striped face"),
    "otter": ("swam", "fish stew", "wet fur"),
    "duck": ("waddled", "barley bread", "yellow feet"),
    "goose": ("waddled", "sweet corn", "white wings"),
    "crow": ("flew", "cherries", "black wings"),
    "turtle": ("walked", "green leaves", "round shell"),
    "snail": ("crept", "salad", "little shell"),
    "bee": ("flew", "clover honey", "tiny wings"),
    "wolf": ("ran", "pumpkin soup", "grey fur"),
    "deer": ("ran", "fresh grass", "thin legs"),
    "goat": ("walked", "thistles", "long beard"),
    "horse": ("trotted", "oats", "brown mane"),
    "donkey": ("trotted", "turnips", "grey ears"),
    "pig": ("trotted", "potatoes", "curly tail"),
    "sheep": ("walked", "clover", "white wool"),
    "hen": ("walked", "corn", "brown feathers"),
    "lion": ("walked", "melons", "golden mane"),
    "tiger": ("crept", "mangoes", "striped tail"),
    "elephant": ("walked", "bananas", "long nose"),
    "monkey": ("climbed", "figs", "quick hands"),
    "penguin": ("waddled", "fish cakes", "short wings"),
    "whale": ("swam", "sea grass", "wide tail"),
    "seal": ("swam", "herring", "shiny fur"),
    "beaver": ("swam", "willow bark", "flat tail"),
    "mole": ("crept", "roots", "pink nose"),
    "robin": ("flew", "crumbs", "red chest"),
    "swan": ("swam", "water lilies", "long neck"),
    "troll": ("walked", "onion pie", "hairy feet"),
    "giant": ("walked", "porridge", "big boots"),
    "fairy": ("flew", "sugar plums", "silver wings"),
    "robot": ("walked", "warm oil", "square head"),
}
# job: (how he or she moves, favourite food, tool)
JOBS: dict[str, tuple[str, str, str]] = {
    "baker": ("walked", "fresh bread", "old apron"),
    "farmer": ("walked", "potato soup", "straw hat"),
    "sailor": ("walked", "fish stew", "blue coat"),
    "painter": ("walked", "peaches", "best brush"),
    "tailor": ("walked", "plum cake", "long needle"),
    "miller": ("walked", "pancakes", "white apron"),
    "fisherman": ("walked", "fried fish", "long net"),
    "gardener": ("walked", "strawberries", "green boots"),
    "shepherd": ("walked", "goat cheese", "wooden stick"),
    "doctor": ("hurried", "apple tart", "black bag"),
    "teacher": ("hurried", "ginger cake", "round glasses"),
    "potter": ("walked", "bean soup", "muddy hands"),
    "cook": ("hurried", "noodles", "big spoon"),
    "carpenter": ("walked", "cheese rolls", "small hammer"),
    "clockmaker": ("hurried", "raisin buns", "tiny tools"),
    "musician": ("walked", "sweet pears", "warm voice"),
    "king": ("rode", "roast apples", "heavy crown"),
    "queen": ("rode", "almond cake", "long cloak"),
    "knight": ("rode", "hot stew", "shiny boots"),
    "princess": ("rode", "cherry pie", "quick feet"),
    "prince": ("rode", "vanilla cake", "red cape"),
    "wizard": ("walked", "mint tea", "tall hat"),
    "witch": ("flew", "pumpkin pie", "old broom"),
    "pirate": ("sailed", "coconuts", "wooden leg"),
    "girl": ("ran", "pancakes", "warm coat"),
    "boy": ("ran", "toffee", "muddy shoes"),
}
MEN = {"fisherman", "king", "prince", "boy", "wizard"}
WOMEN = {"queen", "princess", "girl", "witch", "hen", "fairy"}

# place: (preposition, details that belong to it, spots for hidden things)
PLACES: dict[str, tuple[str, list[str], list[str]]] = {
    "the river": (
        "by",
        ["reeds", "water", "fish"],
        ["under the bridge", "in the reeds", "on the muddy bank"],
    ),
    "the forest": ("in", ["trees", "leaves", "birds"], ["under an oak", "in a hollow tree", "in the moss"]),
    "the sea": ("by", ["waves", "gulls", "foam"], ["on the sand", "in a rock pool", "behind a dune"]),
    "the lake": ("by", ["lilies", "ripples", "swans"], ["under the dock", "in the reeds", "on the shore"]),
    "the village": (
        "in",
        ["houses", "lamps", "children"],
        ["near the well", "behind the school", "in the square"],
    ),
    "the mountain": ("on", ["rocks", "clouds", "eagles"], ["in a small cave", "under a rock", "in the snow"]),
    "the hill": ("on", ["grass", "daisies", "larks"], ["under a stone", "in the tall grass", "by the gate"]),
    "the farm": ("on", ["fields", "cows", "hens"], ["in the hay", "behind the barn", "under the cart"]),
    "the castle": (
        "in",
        ["towers", "flags", "walls"],
        ["under the stairs", "in the tower", "behind a curtain"],
    ),
    "the garden": ("in", ["roses", "bees", "beans"], ["under a leaf", "behind the shed", "among the roses"]),
    "the market": (
        "near",
        ["stalls", "baskets", "voices"],
        ["under a table", "behind a cart", "in a basket"],
    ),
    "the old mill": (
        "in",
        ["wheels", "stones", "swallows"],
        ["behind the wheel", "under a sack", "in the loft"],
    ),
    "the lighthouse": (
        "in",
        ["waves", "ships", "gulls"],
        ["on the stairs", "under the lamp", "on the rocks"],
    ),
    "the harbour": ("near", ["boats", "ropes", "gulls"], ["under a net", "behind a barrel", "in a boat"]),
    "the desert": ("in", ["dunes", "stars", "palms"], ["in the sand", "under a palm tree", "in a dry well"]),
    "the island": ("on", ["palms", "waves", "parrots"], ["on the beach", "under a palm tree", "in a cave"]),
    "the meadow": ("in", ["flowers", "bees", "grass"], ["in the clover", "under a bush", "by the fence"]),
    "the city": ("in", ["streets", "windows", "lights"], ["on a bench", "under a bridge", "on the roof"]),
    "the cave": ("in", ["echoes", "stones", "bats"], ["behind a rock", "in a dark corner", "by the pool"]),
    "the swamp": ("near", ["reeds", "frogs", "fog"], ["in the mud", "on a log", "under a root"]),
    "the valley": ("in", ["fields", "streams", "sheep"], ["by the stream", "under a stone", "in the fern"]),
    "the library": (
        "near",
        ["books", "shelves", "lamps"],
        ["under a desk", "behind a shelf", "in a thick book"],
    ),
    "the station": ("near", ["trains", "bells", "clocks"], ["on a bench", "under the clock", "on the track"]),
    "the orchard": (
        "in",
        ["apples", "branches", "wasps"],
        ["under a pear tree", "in a basket", "in the grass"],
    ),
    "the snow field": ("near", ["snow", "ice", "stars"], ["in the snow", "under the ice", "behind a hill"]),
    "the old bridge": (
        "under",
        ["stones", "water", "ducks"],
        ["between two stones", "in the mud", "in the reeds"],
    ),
}
# object: what happens when it is used
OBJECTS: dict[str, str] = {
    "key": "opened a little door in the wall",
    "lantern": "lit up the whole path",
    "bell": "rang clear and sweet",
    "map": "showed a secret path",
    "ring": "shone like a small sun",
    "drum": "made everyone dance",
    "flute": "played a soft tune",
    "kite": "rose high above the roofs",
    "boat": "floated without a leak",
    "book": "was full of funny tales",
    "hat": "kept out the rain",
    "scarf": "kept out the cold",
    "umbrella": "opened like a big flower",
    "ball": "bounced higher than a house",
    "lamp": "glowed all night",
    "clock": "began to tick again",
    "coin": "shone in the light",
    "feather": "danced in the wind",
    "seed": "grew into a tall tree",
    "egg": "opened, and a chick looked out",
    "stone": "felt warm to the touch",
    "shell": "sang like the sea",
    "letter": "brought very good news",
    "box": "opened with a click",
    "teapot": "poured the best tea in the land",
    "spoon": "made every soup taste good",
    "basket": "was never empty again",
    "mirror": "showed a smiling face",
    "crown": "sparkled in the sun",
    "compass": "pointed the way home",
    "candle": "burned with a blue flame",
    "blanket": "was as warm as summer",
    "button": "fitted the old coat",
    "whistle": "called all the birds",
    "star": "twinkled and hummed",
    "rope": "held fast",
    "pencil": "drew pictures that moved",
    "wagon": "rolled along quickly",
}
OBJECT_ADJECTIVES = listed(
    "silver golden red blue green yellow tiny old wooden glass shiny white black strange round heavy pretty "
    "little dusty copper purple striped magic"
)
HERO_ADJECTIVES = listed(
    "small young old brave shy clever curious kind quiet cheerful lazy proud gentle busy sleepy lonely "
    "little funny hungry wise"
)
FRIEND_ADJECTIVES = listed("kind old clever tired friendly quiet merry wise patient small")
HOBBIES = [
    "singing",
    "dancing",
    "long walks",
    "old songs",
    "rainy days",
    "warm evenings",
    "riddles",
    "stories",
    "counting stars",
    "painting",
    "collecting leaves",
    "baking",
    "fishing",
    "climbing",
    "naps",
    "music",
    "telling jokes",
    "flying kites",
    "growing beans",
    "swimming",
]
TIMES = [
    "one day",
    "one morning",
    "one evening",
    "one night",
    "one spring day",
    "one cold morning",
    "one afternoon",
    "early one morning",
    "one rainy day",
    "one sunny morning",
    "one windy night",
    "one summer evening",
    "late one night",
    "one autumn day",
    "on a foggy morning",
    "on market day",
    "one winter morning",
    "one Sunday",
]
WEATHERS = [
    "the sun was warm",
    "rain fell softly",
    "the wind was strong",
    "snow lay on the ground",
    "fog hid the path",
    "the sky was pink",
    "the moon was full",
    "clouds drifted by",
    "the air smelled of flowers",
    "frost shone",
    "a light breeze blew",
    "the stars were bright",
    "thunder rolled far away",
    "the day was hot",
]
# things to describe: (where it stands, what people see, what they hear or smell)
SIGHTS: dict[str, tuple[str, str, str]] = {
    "lighthouse": ("on a cliff above the sea", "a bright lamp", "the waves"),
    "castle": ("on a steep hill", "four grey towers", "the flags in the wind"),
    "mill": ("beside a slow river", "a big wooden wheel", "the water"),
    "bakery": ("at the corner of the square", "rows of round loaves", "the crackling oven"),
    "library": ("in a quiet street", "books up to the roof", "pages turning"),
    "bridge": ("over a deep river", "three stone arches", "the rushing water"),
    "cottage": ("at the edge of the forest", "a crooked chimney", "a singing kettle"),
    "harbour": ("below the white town", "many little boats", "the gulls"),
    "garden": ("behind a high wall", "roses of every colour", "the busy bees"),
    "tower": ("in the middle of the forest", "a narrow window", "an owl"),
    "market": ("in front of the church", "piles of red apples", "merry voices"),
    "ship": ("in a calm bay", "tall white sails", "the creaking ropes"),
    "cave": ("halfway up the mountain", "walls that glittered", "dripping water"),
    "school": ("next to the village well", "drawings on every wall", "children laughing"),
    "station": ("at the end of the road", "a round clock", "a far whistle"),
    "barn": ("on a green field", "golden hay", "sleepy cows"),
    "shop": ("between two tall houses", "shelves of strange toys", "a small bell"),
    "well": ("under an old tree", "clear cold water", "a deep echo"),
    "lake": ("between dark hills", "white water lilies", "the frogs"),
    "forest": ("beyond the last field", "trees as old as kings", "the birds"),
}
SIGHT_ADJECTIVES = listed("old small quiet big strange lonely pretty dusty bright secret")
