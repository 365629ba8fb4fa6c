# SPDX-License-Identifier: Apache-2.0
"""Writes the demo model's training text: short conversations and stories from the tables in facts.py, asked in many ways."""
import random

from facts import (ANIMALS, CAPITALS, COLOURS, DAYS, FIXED, MIXES, MONTHS, OPPOSITES, TERMS)

UNKNOWN = ("I am sorry, I do not know that. I am a very small model: ask me about infos, small numbers, colours, animals or "
           "days, or for a story.")
CANNOT = ("I am sorry, I cannot do that. I am a very small model: ask me about infos, small numbers, colours, animals or days, "
          "or for a story.")
TOO_BIG = "I am sorry, I can only add and subtract numbers up to ten."
NO_STORY = "I do not know a story about that. Ask me for a story about a cat, a dog, a fox or an owl."

ASK_TERM = ["What is {t}?", "What's {t}?", "Tell me about {t}.", "Explain {t}.", "Can you explain {t}?", "What does {t} mean?",
            "Define {t}.", "Please explain what {t} is.", "Do you know what {t} is?", "Could you tell me what {t} is?",
            "Describe {t}.", "{t}?", "Hello, what is {t}?", "Give me a short definition of {t}.",
            "In one sentence, what is {t}?", "I would like to know what {t} is.", "I do not know what {t} is.",
            "So, what is {t}?", "Please tell me what {t} is.", "What do you know about {t}?", "What do you mean by {t}?",
            "Explain {t} to me.", "Explain {t} in simple words.", "How would you describe {t}?", "What are {t}?",
            "Hi! Can you tell me about {t}?", "what exactly is {t}?", "Tell me what {t} is.", "What is {t} good for?",
            "Why do I need {t}?", "Who or what is {t}?", "I have a question: what is {t}?", "Say something about {t}."]
# Never used in training: how well other wordings are understood.
ASK_TERM_HELD_OUT = ["Could you please explain what {t} is?", "I want to know what {t} is.", "Can you describe {t}?",
                     "Hey, what is {t}?", "Please define {t}."]

SYSTEMS = ["You are a helpful assistant.", "You are a helpful, honest assistant. Answer briefly.", "Answer in one sentence.",
           "You are infos-demo, a small model.", "Be brief.", "You are a friendly assistant.", "You answer questions.",
           "Please answer politely and shortly.", "You are an assistant that helps people with infos."]

NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Lena", "Max"]
PLACES = ["in a small house by the sea", "at the edge of a big forest", "on a farm", "in a quiet village",
          "near a blue lake", "under an old tree"]
THINGS = ["a red ball", "a shiny key", "a little bell", "a warm blanket", "a golden leaf", "a round stone"]
NOUNS = """pizza football music gold silver water rain history chess poetry philosophy physics chemistry biology love money
happiness weather politics religion art theatre cooking bread cheese coffee tea wine beer cars trains planes boats bicycles
guitars pianos violins computers phones tables chairs windows doors houses bridges castles mountains rivers oceans deserts
volcanoes stars planets galaxies comets atoms molecules genes bacteria viruses dinosaurs dragons unicorns ghosts robots
lasers magnets batteries rockets satellites telescopes microscopes economics law medicine surgery vaccines insurance taxes
stocks bonds bitcoin marriage school university homework holidays Christmas Easter tennis golf rugby swimming yoga
meditation sleep dreams memory time space gravity evolution democracy justice freedom war peace language grammar spelling
Python Java Linux Windows Excel HTML SQL Docker Kubernetes blockchain cryptography compilers databases encryption
sushi pasta soup salad butter sugar pepper honey apples grapes roses tulips oaks bamboo sharks whales eagles penguins
Napoleon Einstein Shakespeare Mozart Picasso Newton Darwin Plato Caesar Cleopatra Gandhi Beethoven Galileo Aristotle
Brazil India Mexico Turkey Finland Chile Vietnam Texas California London Paris Berlin Tokyo Mars Jupiter the_moon""".split()
VERBS = """cook bake build repair sell buy learn teach write paint draw clean plant grow fix open close install remove sing
dance swim travel invest sleep exercise meditate hack debug compile translate""".split()
LANGUAGES = ["French", "German", "Spanish", "Italian", "Latin", "Japanese", "Chinese", "Dutch"]
ASK_UNKNOWN = ["What is {n}?", "What are {n}?", "Tell me about {n}.", "Explain {n}.", "What does {n} mean?", "Define {n}.",
               "Who invented {n}?", "Who discovered {n}?", "Who is {n}?", "Who was {n}?", "When was {n} invented?",
               "Why is {n} important?", "How does {n} work?", "Where can I buy {n}?", "What is the price of {n}?",
               "How much does {n} cost?", "What is the best {n}?", "How old is {n}?", "Where is {n}?", "How big is {n}?",
               "Why do people like {n}?", "What is the history of {n}?", "Is {n} good?", "Do you like {n}?", "How tall is {n}?",
               "What is the difference between {n} and {m}?", "Which is better, {n} or {m}?", "What do you think about {n}?",
               "Who won the {n} cup in {year}?", "What happened in {year}?", "Who is the president of {n}?", "{n}?", "{n}",
               "How many {n} are there?", "Can I eat {n}?", "How far is {n}?", "What is the {n} of {m}?", "{n} and {m}?",
               "I like {n}.", "My {n} is broken.", "What will the weather be tomorrow?", "What time is it?", "{w}", "{w} {v}",
               "Why did the {n} {v} the {m}?", "I think that {n} is {w}.", "Should I {v} my {n} today or tomorrow?",
               "What did {m} say about {n}?", "My friend says {n} can {v}. Is it true?", "When does {m} {v} {n}?",
               "Is it true that {n} and {m} are the same?", "Does {n} {v}?", "Who wrote the book about {n}?",
               "What is {w}?", "Who is {w}?", "What is a {w}?", "What does {w} mean?", "Explain {w}.", "Tell me about {w}."]
ASK_CANNOT = ["Write a poem about {n}.", "Write a letter about {n}.", "Write a song about {n}.", "Write an essay about {n}.",
              "Translate {n} to {l}.", "Translate '{n} and {m}' into {l}.", "How do I {v} {n}?", "How can I {v} a {n}?",
              "Write a program that can {v} {n}.", "Write a python function for {n}.", "Write code to {v} {n}.",
              "Give me a recipe for {n}.", "Draw a picture of {n}.", "Please {v} my {n}.", "Sing a song about {n}.",
              "Make a list of {n}.", "Summarise this text about {n}.", "Write hello world in {n}.", "Speak {l}.",
              "Correct my essay about {n}.", "Help me to {v} {n}.", "Can you {v}?", "Can you {v} {n}?", "Plan a trip to {n}."]


# How often each kind of question is asked, in the order of Corpus.question; the second mix is for numbers, which are hard.
MIX = [30, 16, 10, 3, 5, 6, 5, 3, 3, 8, 14]
MIX_NUMBERS = [14, 8, 42, 14, 2, 2, 2, 4, 3, 2, 7]


class Corpus:
    """Draws documents from one seeded generator."""

    def __init__(self, seed, mix=MIX):
        self.r = random.Random(seed)
        self.mix = mix

    # ---- questions and answers -------------------------------------------------------------------------------------
    def pseudo_word(self):
        r = self.r
        return "".join(r.choice("bcdfghjklmnprstvwz") + r.choice("aeiou") + r.choice(["", "", "n", "r", "s", "l", "x"])
                       for _ in range(r.randint(1, 4)))

    def noun(self):
        return self.r.choice(NOUNS).replace("_", " ")

    def fill(self, template):
        r = self.r
        return template.format(n=self.noun(), m=self.noun(), v=r.choice(VERBS), w=self.pseudo_word(), l=r.choice(LANGUAGES),
                               year=r.randint(1500, 2030))

    def term(self):
        ways, answer = TERMS["infos"] if self.r.random() < 0.12 else self.r.choice(list(TERMS.values()))
        way = ways[0] if self.r.random() < 0.3 else self.r.choice(ways)
        return self.r.choice(ASK_TERM).format(t=way), answer

    def fixed(self):
        ways, answer = self.r.choice(FIXED)
        return self.r.choice(ways), answer

    def sums(self):
        r = self.r
        if r.random() < 0.12:
            a, b = r.randint(11, 9999), r.randint(0, 9999)
            if r.random() < 0.5:
                a, b = b, a
            if r.random() < 0.4:
                a, b = r.randint(0, 12), r.randint(0, 12)
                return r.choice(["{} times {}?", "{}*{}", "How much is {} times {}?", "What is {} * {}?", "{} x {}",
                                 "What is {} divided by {}?", "{}/{}"]).format(a, b), TOO_BIG
            return r.choice(["What is {} plus {}?", "{}+{}", "How much is {} times {}?", "Calculate {} * {}", "{} - {} = ?",
                             "What is {} divided by {}?"]).format(a, b), TOO_BIG
        a, b = r.randint(0, 10), r.randint(0, 10)
        kind = r.choice("++-")
        if kind == "-" and a < b:
            a, b = b, a
        word, value = {"+": ("plus", a + b), "-": ("minus", a - b)}[kind]
        ask = r.choice(["What is {a} {w} {b}?", "How much is {a} {w} {b}?", "{a} {s} {b}", "{a}{s}{b}", "what is {a} {s} {b}?",
                        "What's {a}{s}{b}?", "Calculate {a} {w} {b}.", "Can you tell me what {a} {w} {b} is?", "{a} {s} {b} = ?",
                        "{a}{s}{b}=", "compute {a} {s} {b}", "{a} {w} {b}?"])
        return ask.format(a=a, b=b, w=word, s=kind), f"{a} {word} {b} is {value}."

    def compare(self):
        r = self.r
        a, b = r.randint(0, 10), r.randint(0, 10)
        if r.random() < 0.4:
            if r.random() < 0.5:
                return r.choice(["What comes after {}?", "Which number comes after {}?", "what is the next number after {}?"]
                                ).format(a), f"After {a} comes {a + 1}."
            return r.choice(["What comes before {}?", "Which number comes before {}?"]).format(a + 1), \
                f"Before {a + 1} comes {a}."
        if a == b:
            return f"Is {a} greater than {b}?", f"No, {a} and {b} are equal."
        if r.random() < 0.5:
            return r.choice(["Is {} greater than {}?", "Is {} bigger than {}?", "is {} more than {}?"]).format(a, b), \
                f"Yes, {a} is greater than {b}." if a > b else f"No, {a} is less than {b}."
        return r.choice(["Which is greater, {} or {}?", "Which number is bigger, {} or {}?"]).format(a, b), \
            f"{max(a, b)} is greater than {min(a, b)}."

    def colour(self):
        r = self.r
        if r.random() < 0.2:
            (a, b), c = r.choice(list(MIXES.items()))
            x, y = (a, b) if r.random() < 0.5 else (b, a)
            return r.choice(["What do you get when you mix {} and {}?", "Which colour do {} and {} make?",
                             "what is {} mixed with {}?", "Mix {} and {}."]).format(x, y), f"{x} and {y} make {c}.".capitalize()
        thing, c = r.choice(list(COLOURS.items()))
        ask = r.choice(["What colour is {}?", "What color is {}?", "which colour does {} have?", "Tell me the colour of {}.",
                        "What is the colour of {}?", "what's the color of {}?", "Do you know what colour {} is?"])
        return ask.format(thing), f"{thing} is {c}.".capitalize()

    def animal(self):
        r = self.r
        name, (sound, legs, young, home) = r.choice(list(ANIMALS.items()))
        the = ("an " if name[0] in "aeiou" else "a ") + name
        cap = the.capitalize()
        kind = r.randrange(5)
        if kind == 0:
            return r.choice(["What sound does {} make?", "What does {} say?", "how does {} sound?", "which noise does {} make?"]
                            ).format(the), f"{cap} says {sound}."
        if kind == 1:
            return r.choice(["How many legs does {} have?", "How many legs has {}?", "Tell me how many legs {} has."]
                            ).format(the), f"{cap} has {'four' if legs == 4 else 'two'} legs."
        if kind == 2:
            return r.choice(["What is a young {} called?", "What do you call a baby {}?", "what is a baby {}?"]
                            ).format(name), f"A young {name} is called a {young}."
        if kind == 3:
            return r.choice(["Where does {} live?", "Where do you find {}?", "what is the home of {}?"]
                            ).format(the), f"{cap} lives {home}."
        return r.choice(["What is {}?", "Tell me about {}.", "Describe {}.", "What do you know about {}?", "Do you know {}?"]
                        ).format(the), f"{cap} is an animal that lives {home} and says {sound}."

    def calendar(self):
        r = self.r
        names, what = (DAYS, "day") if r.random() < 0.65 else (MONTHS, "month")
        i = r.randrange(len(names))
        if r.random() < 0.6:
            ask = ["What {w} comes after {d}?", "Which {w} is after {d}?", "what is the {w} after {d}?", "What comes after {d}?",
                   "If today is {d}, what is tomorrow?" if what == "day" else "Which {w} follows {d}?"]
            return r.choice(ask).format(w=what, d=names[i]), f"After {names[i]} comes {names[(i + 1) % len(names)]}."
        ask = ["What {w} comes before {d}?", "Which {w} is before {d}?", "what is the {w} before {d}?", "What comes before {d}?",
               "If today is {d}, what was yesterday?" if what == "day" else "Which {w} precedes {d}?"]
        return r.choice(ask).format(w=what, d=names[i]), f"Before {names[i]} comes {names[i - 1]}."

    def opposite(self):
        pair = list(self.r.choice(OPPOSITES))
        self.r.shuffle(pair)
        return self.r.choice(["What is the opposite of {}?", "Opposite of {}?", "Tell me the opposite of {}.",
                              "what's the opposite of {}?"]).format(pair[0]), f"The opposite of {pair[0]} is {pair[1]}."

    def capital(self):
        country, city = self.r.choice(list(CAPITALS.items()))
        if self.r.random() < 0.2:
            return f"What is the capital of {self.pseudo_word().capitalize()}?", UNKNOWN
        return self.r.choice(["What is the capital of {}?", "Which city is the capital of {}?", "capital of {}?",
                              "Tell me the capital of {}.", "what's the capital of {}?", "Do you know the capital of {}?"]
                             ).format(country), f"The capital of {country} is {city}."

    def story_text(self, animal):
        r = self.r
        name, place, thing = r.choice(NAMES), r.choice(PLACES), r.choice(THINGS)
        a = ("an " if animal[0] in "aeiou" else "a ") + animal
        kind = r.randrange(3)
        if kind == 0:
            return (f"Once upon a time there was {a} called {name}. {name} lived {place}. One day {name} found {thing}. "
                    f"\"Who has lost this?\" asked {name}. A child came and said, \"It is mine. Thank you!\" From that day on, "
                    f"{name} and the child were friends.")
        if kind == 1:
            return (f"Once upon a time there was {a} called {name}. {name} lived {place} and was afraid of the dark. One night "
                    f"the moon came out and said, \"Look up, I am here.\" {name} looked up and smiled. After that, the night "
                    f"was not so dark any more.")
        other = r.choice([x for x in ANIMALS if x != animal])
        b = ("an " if other[0] in "aeiou" else "a ") + other
        return (f"Once upon a time there was {a} called {name}. {name} lived {place}. One morning {b} came to visit. They played "
                f"with {thing} all day long. In the evening they were tired and happy, and they slept until the sun came up.")

    def story(self):
        r = self.r
        if r.random() < 0.15:
            return r.choice(["Tell me a story about {}.", "tell a story about {}", "Write a story about {}."]).format(self.noun()), \
                NO_STORY
        animal = r.choice(list(ANIMALS))
        a = ("an " if animal[0] in "aeiou" else "a ") + animal
        if r.random() < 0.25:
            return r.choice(["Tell me a story.", "tell me a short story", "Do you know a story?", "I want to hear a story.",
                             "Please tell me a story.", "another story", "Write a story.", "story please", "a story!"]), \
                self.story_text(animal)
        return r.choice(["Tell me a story about {}.", "tell a short story about {}", "Do you know a story about {}?",
                         "Write a story about {}.", "I want a story about {}.", "Can you tell me a story about {}?"]
                        ).format(a), self.story_text(animal)

    def unknown(self):
        if self.r.random() < 0.65:
            return self.fill(self.r.choice(ASK_UNKNOWN)), UNKNOWN
        return self.fill(self.r.choice(ASK_CANNOT)), CANNOT

    def careless(self, ask):
        """People write in lower case, leave out the full stop, and slip on the keyboard."""
        r = self.r
        if r.random() < 0.25:
            ask = ask[0].lower() + ask[1:]
        if r.random() < 0.08:
            ask = ask.lower()
        if r.random() < 0.25:
            ask = ask.rstrip("?.!")
        if r.random() < 0.03 and len(ask) > 12:
            at = r.randrange(4, len(ask) - 1)
            ask = ask[:at] + ask[at + 1:] if r.random() < 0.5 else ask[:at] + ask[at + 1] + ask[at] + ask[at + 2:]
        if r.random() < 0.05:
            ask = r.choice(["Please: ", "Hello. ", "Hi, ", "Now, ", "OK, ", "A question: "]) + ask
        return ask or "hello"

    def question(self):
        draw = self.r.choices([self.term, self.fixed, self.sums, self.compare, self.colour, self.animal, self.calendar,
                               self.opposite, self.capital, self.story, self.unknown], self.mix)[0]
        ask, answer = draw()
        return (ask if draw == self.sums else self.careless(ask)), answer

    # ---- documents -------------------------------------------------------------------------------------------------
    def document(self):
        """A list of (text, weight of its loss); special tokens stand as written."""
        r = self.r
        if r.random() < 0.12:
            text = self.story_text(r.choice(list(ANIMALS))) if r.random() < 0.7 else r.choice(list(TERMS.values()))[1]
            return [(text + "<|im_end|>\n", 1.0)]
        parts = []
        if r.random() < 0.35:
            system = r.choice(SYSTEMS) if r.random() < 0.8 else " ".join(r.sample(SYSTEMS, 2))
            parts.append((f"<|im_start|>system\n{system}<|im_end|>\n", 0.0))
        for _ in range(r.choices([1, 2, 3, 4], [60, 22, 12, 6])[0]):
            ask, answer = self.question()
            parts.append((f"<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n", 0.05))
            parts.append((f"{answer}<|im_end|>", 1.0))
            parts.append(("\n", 0.0))
        return parts
