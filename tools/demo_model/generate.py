#!/usr/bin/env python3
"""Synthetic training text for the Quire demo model.

Everything the demo model knows comes from this file: it needs only the Python
standard library, downloads nothing, and gives the same documents for the same
seed.  A document is one string in the model's own text format: either plain
text, or a chat in the ChatML form that models/quire-demo/chat_template.jinja
renders (`python3 generate.py --check-template` compares the two).

Additions are split into training and held-out pairs by a hash of the two
operands (`is_held_out`).  No held-out pair is added up anywhere in the
training text, in either order; evaluate.py asks only for held-out pairs.

    python3 generate.py --count 20 --seed 1          # print documents
    python3 generate.py --stats                      # size and mix of the text
"""

import argparse
import json
import random
import re
import zlib

# --------------------------------------------------------------------------
# The split
# --------------------------------------------------------------------------

HELD_OUT_ONE_IN = 20


def is_held_out(a, b):
    """True when the unordered pair (a, b) is kept out of the training text."""
    lo, hi = (a, b) if a <= b else (b, a)
    if hi < 10:  # the one-digit table is learned by heart
        return False
    return zlib.crc32(f"{lo}+{hi}".encode()) % HELD_OUT_ONE_IN == 0


# --------------------------------------------------------------------------
# Words
# --------------------------------------------------------------------------

NAMES = """Alice Bob Carol David Emma Frank Grace Henry Ivy Jack Kate Leo Mia Noah Olivia Peter Quinn Rosa Sam
Tom Uma Victor Wendy Xavier Yara Zoe Anna Ben Clara Daniel Ella Finn Gina Hugo Iris James Karen Liam Maria
Nora Oscar Paula Robin Sara Theo Ursula Vera Will Maya Lucas Lena Max Nina Omar Priya Ravi Sofia Tara Ana
John Jane Mary Paul Laura Mark Linda Eva Adam Ruth Kofi Amara Hana Yuki Chen Mei Diego Lucia Marco Elif""".split()

ANIMALS = """fox bear rabbit cat dog mouse owl frog horse cow sheep duck wolf deer lion tiger elephant monkey
penguin turtle whale dolphin squirrel hedgehog goat pig chicken snail bee ant spider crow eagle swan otter
beaver badger mole bat seal parrot camel zebra giraffe panda koala kangaroo lizard snake dragon goose hen""".split()

FRUITS = """apple banana cherry plum pear peach orange lemon lime grape melon mango kiwi fig date apricot
strawberry raspberry blueberry pineapple coconut papaya pomegranate tangerine""".split()

THINGS = """apple book pencil coin stone shell marble ticket card button stamp toy ball flower egg cookie
candle bottle cup spoon key hat box balloon sticker bead nut seed leaf feather orange sweet brick chair""".split()

COLOURS = "red blue green yellow orange purple pink brown black white grey gold silver violet turquoise".split()

ADJECTIVES = """small big old young brave clever kind quiet happy sad shy curious gentle tired hungry lonely
proud funny lazy busy careful quick slow strong wise tiny bright dark warm cold soft loud golden silent""".split()

PLACE_ADJECTIVES = "small big old quiet green dark sunny lonely cold warm distant beautiful busy peaceful little windy".split()

PLACES = """forest village meadow valley garden mountain river lake island castle farm desert harbour city
town cave beach hill field orchard library market school tower bridge swamp jungle mill bakery""".split()

NOUNS = """table window door lamp road cloud rain storm wind snow sun moon star night morning evening winter
summer spring autumn tree grass rock sand water fire bread milk cheese soup cake honey salt sugar tea coffee
paper letter story song music dance game dream friend mother father sister brother teacher doctor farmer baker
king queen prince knight pirate sailor soldier child baby woman man boy girl house room kitchen wall roof floor
street train boat ship car bus wheel bell clock mirror picture camera phone radio computer machine engine rope
basket blanket pillow shirt coat shoe glove scarf ring crown sword shield map treasure secret magic number word
hand foot head heart eye ear nose mouth hair finger shoulder voice name place world country party gift plan idea
question answer lesson problem trouble luck hope joy fear anger peace war time day week month year minute hour
breakfast lunch dinner pocket ladder hammer nail barrel carrot potato onion tomato pepper bean rice corn wheat
anchor arrow candle canyon cactus compass cotton crystal diamond emerald ember falcon feather galaxy glacier
hazel ivory jacket jasmine kettle lantern lemon maple marble meteor mosaic nectar needle oasis onyx orchid
pebble pepper pillow planet pocket puzzle quartz quill rainbow raven ribbon saddle saffron shadow silver sparrow
temple thunder tulip tunnel velvet violin walnut whisper willow yellow zebra zephyr""".split()

VERBS = """walk run jump sing dance read write cook bake swim climb sleep laugh play draw paint build fix find
look listen talk wait watch help carry open close wash grow plant pick catch throw push pull ride fly""".split()

ALL_WORDS = sorted(set(ANIMALS + FRUITS + THINGS + COLOURS + ADJECTIVES + PLACES + NOUNS + VERBS))

SYLLABLES = [c + v + e for c in ("b bl br c ch cl d dr f fl g gl gr h j k l m n p pl pr qu r s sh sl sn st t th tr "
                                 "v w z").split() + [""]
             for v in "a e i o u oo ee ai".split() for e in ["", "", "n", "r", "t", "l", "m", "x", "rb", "lk", "mp"]]

CITIES = """Paris London Berlin Madrid Rome Lisbon Vienna Prague Warsaw Athens Oslo Stockholm Helsinki Dublin
Brussels Amsterdam Tokyo Beijing Delhi Cairo Nairobi Lagos Toronto Boston Chicago Seattle Denver Lima Bogota
Sydney Melbourne Seoul Bangkok Hanoi Istanbul Munich Hamburg Zurich Geneva Milan Barcelona Lyon Mumbai Dubai""".split()
CITIES += ["New York", "San Francisco", "Los Angeles", "Cape Town", "Mexico City", "Buenos Aires", "Hong Kong"]


def made_up_word(r):
    """A lower-case word that need not exist."""
    kind = r.random()
    if kind < 0.50:
        w = "".join(r.choice(SYLLABLES) for _ in range(r.choice((1, 2, 2, 2, 3, 3))))
        if len(w) < 3:
            w += r.choice(SYLLABLES) + "t"
    elif kind < 0.85:
        w = "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randint(3, 9)))
    else:
        w = r.choice(ALL_WORDS) + r.choice(ALL_WORDS)[: r.randint(2, 5)]
    w = w[:14]
    if r.random() < 0.30:
        w += str(r.choice((r.randint(0, 9), r.randint(0, 99), r.randint(0, 999))))
    return w


# every lower-case word that occurs in this file, for pieces of made-up words
with open(__file__, encoding="utf-8") as _f:
    FILE_WORDS = sorted(set(re.findall(r"[a-z]{3,}", _f.read())))


def piece(r):
    w = r.choice(FILE_WORDS)
    i = r.randint(0, max(0, len(w) - 3)) if r.random() < 0.5 else 0
    return w[i:i + r.randint(2, 8)]


def secret_word(r):
    kind = r.random()
    if kind < 0.20:
        return r.choice(ALL_WORDS)
    if kind < 0.60:
        return made_up_word(r)
    if kind < 0.85:
        w = piece(r) + (piece(r) if r.random() < 0.8 else "") + (piece(r) if r.random() < 0.1 else "")
        return w[:16] + (str(r.randint(0, 9999))[:r.randint(1, 4)] if r.random() < 0.3 else "")
    if kind < 0.90:
        return r.choice((r.choice(ALL_WORDS), made_up_word(r))) + r.choice("--_") + r.choice((r.choice(ALL_WORDS), made_up_word(r), str(r.randint(0, 999))))
    if kind < 0.93:
        return str(r.randint(100, 99999))
    if kind < 0.97:
        letters = r.choice(("abcdef0123456789", "abcdefghijklmnopqrstuvwxyz0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
        return "".join(r.choice(letters) for _ in range(r.randint(4, 10)))
    return r.choice((str.upper, str.capitalize))(made_up_word(r))


def article(word):
    return ("an " if word[0] in "aeiouAEIOU" else "a ") + word


def plural(word):
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    if word.endswith("leaf"):
        return word[:-1] + "ves"
    return word + "s"


def join_and(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


# --------------------------------------------------------------------------
# Numbers
# --------------------------------------------------------------------------

def operand(r):
    d = r.random()
    if d < 0.12:
        return r.randint(0, 9)
    if d < 0.42:
        return r.randint(10, 99)
    if d < 0.90:
        return r.randint(100, 999)
    if d < 0.96:
        return r.randint(1000, 9999)
    if d < 0.985:
        return r.randint(10000, 99999)
    return r.randint(100000, 999999)


def training_pair(r, draw=operand):
    while True:
        a, b = draw(r), draw(r)
        if not is_held_out(a, b):
            return a, b


ADD = """What is {a} + {b}?|What is {a} plus {b}?|What's {a} + {b}?|what is {a} + {b}|Add {a} and {b}.|Add {a} to {b}.
|add {a} and {b}|How much is {a} + {b}?|How much is {a} plus {b}?|how much is {a} and {b}|{a} + {b} = ?|{a} + {b}|{a}+{b}
|{a} + {b} =|{a}+{b}=|{a}+{b}=?|Calculate {a} + {b}.|Compute {a} + {b}.|Calculate the sum of {a} and {b}.
|What is the sum of {a} and {b}?|Find the sum of {a} and {b}.|Sum {a} and {b}.|sum of {a} and {b}
|What do you get if you add {a} and {b}?|What do you get when you add {a} to {b}?|What do {a} and {b} add up to?
|Can you add {a} and {b}?|Could you add {a} and {b} for me?|Could you work out {a} + {b}?|Work out {a} plus {b}.
|Tell me what {a} + {b} is.|Tell me {a} plus {b}.|I need to know {a} + {b}.|Evaluate {a} + {b}.|Solve {a} + {b}.
|Solve: {a} + {b}|What does {a} + {b} equal?|What does {a} plus {b} make?|{a} plus {b} equals what?|{a} plus {b}
|{a} and {b} together make how much?|What is the total of {a} and {b}?|Give me the total of {a} and {b}.|Total of {a} and {b}?
|Increase {a} by {b}.|If you add {a} and {b}, what is the result?|What is the result of {a} + {b}?|What is the answer to {a} + {b}?
|Give me the answer to {a} + {b}.|Take {a} and add {b} to it.|Start with {a} and add {b}.|What number is {a} + {b}?
|What is {a} added to {b}?|What is {a} and {b} added together?|Put {a} and {b} together.|Can you tell me what {a} plus {b} is?
|Do you know what {a} + {b} is?|My homework says {a} + {b}. What is it?|I have two numbers, {a} and {b}. What is their sum?
|The numbers are {a} and {b}. Add them.|First number: {a}. Second number: {b}. What is the sum?|Sum: {a}, {b}
|Please compute the sum {a} + {b}|Please calculate {a} plus {b}|add({a}, {b})|how much do {a} and {b} make?
|What is ({a} + {b})?|Let x = {a} and y = {b}. What is x + y?|Which number is {a} + {b}?|What comes out of {a} + {b}?
|What results from {a} + {b}?|Which number do you get for {a} + {b}?|What do we get from adding {a} and {b}?|Which result do I get for {a} plus {b}?""".replace("\n", "").split("|")

# Phrasings that the training text never uses; evaluate.py reports them apart.
ADD_HELD_OUT = ["Do the addition {a} + {b} for me.", "Let me know what {a} plus {b} comes to.",
                "I want to know the result of adding {a} and {b}.", "Which number do I get from {a} + {b}?",
                "Here is a sum: {a} + {b}. What is the answer?"]

SUB = """What is {a} - {b}?|What is {a} minus {b}?|What's {a} - {b}?|what is {a} - {b}|how much is {a} minus {b}|How much is {a} - {b}?
|{a} - {b} = ?|{a} - {b}|{a}-{b}|{a} - {b} =|{a}-{b}=|Calculate {a} - {b}.|Compute {a} minus {b}.|Work out {a} minus {b}.
|What is the difference between {a} and {b}?|What is left if you take {b} from {a}?|Take {b} away from {a}.|Subtract {b} from {a}.
|Decrease {a} by {b}.|Tell me what {a} - {b} is.|What do you get if you subtract {b} from {a}?|What does {a} - {b} equal?
|Can you subtract {b} from {a}?|Start with {a} and take away {b}.|What is the result of {a} - {b}?|Solve {a} - {b}.
|Which number is left if I take {b} from {a}?|Which number do you get for {a} - {b}?|What results from {a} - {b}?""".replace("\n", "").split("|")

PREFIX = ["Hi! ", "Hello. ", "Hey, ", "Please: ", "Quick question: ", "Question: ", "Okay. ", "Thanks! ", "Now: ",
          "Next: ", "I have a question. ", "Here is a sum for you. ", "Maths time! ", "One more: "]
SUFFIX = [" Thanks!", " Please.", " Thank you.", " Answer with the result.", " Be brief.", " Just the answer, please.",
          " I am not sure.", " Can you help?"]


def dress(r, text):
    """Small changes that people make to a question."""
    k = r.random()
    if k < 0.60:
        return text
    if k < 0.72:
        return text.lower()
    if k < 0.82:
        return r.choice(PREFIX) + text
    if k < 0.90:
        return text + r.choice(SUFFIX)
    if k < 0.95 and text[-1] in "?.":
        return text[:-1]
    return r.choice(PREFIX) + text + r.choice(SUFFIX)


def add_question(r, a, b):
    return dress(r, r.choice(ADD).format(a=a, b=b))


def t_add(r):
    a, b = training_pair(r)
    return [(add_question(r, a, b), f"{a} + {b} = {a + b}")]


def t_sub(r):
    a, b = operand(r), operand(r)
    if a < b and r.random() < 0.9:
        a, b = b, a
    return [(dress(r, r.choice(SUB).format(a=a, b=b)), f"{a} - {b} = {a - b}")]


ADD_STORIES = [
    ("{n} has {a} {t}. {m} gives {n} {b} more. How many {t} does {n} have now?", "so {n} has {c} {t}."),
    ("{n} has {a} {t} and {m} has {b} {t}. How many {t} do they have together?", "so they have {c} {t} together."),
    ("There are {a} {t} in one box and {b} {t} in another. How many {t} are there?", "so there are {c} {t}."),
    ("{n} found {a} {t} on Monday and {b} {t} on Tuesday. How many {t} is that in total?", "so {n} found {c} {t} in total."),
    ("A shop sold {a} {t} in the morning and {b} {t} in the evening. How many {t} did it sell?", "so the shop sold {c} {t}."),
    ("If I have {a} {t} and get {b} more, how many do I have?", "so you have {c} {t}."),
    ("I had {a} {t}. Then I bought {b} more. How many {t} do I have?", "so you have {c} {t}."),
    ("{n} walks {a} steps and then {b} steps. How many steps is that?", "so {n} walks {c} steps."),
    ("A farmer has {a} sheep and buys {b} more sheep. How many sheep are there now?", "so there are {c} sheep."),
    ("{n} read {a} pages last week and {b} pages this week. How many pages did {n} read?", "so {n} read {c} pages."),
]
SUB_STORIES = [
    ("{n} has {a} {t} and gives {b} of them to {m}. How many {t} does {n} have left?", "so {n} has {c} {t} left."),
    ("There are {a} {t} in a box. {n} takes {b} of them. How many {t} are left?", "so {c} {t} are left."),
    ("I had {a} {t} and lost {b}. How many do I have now?", "so you have {c} {t}."),
    ("A book has {a} pages. {n} has read {b} pages. How many pages are left?", "so {c} pages are left."),
    ("A shop had {a} {t} and sold {b}. How many {t} are left?", "so {c} {t} are left."),
]


def t_word_problem(r):
    n, m = r.sample(NAMES, 2)
    t = plural(r.choice(THINGS))
    if r.random() < 0.7:
        a, b = training_pair(r)
        q, s = r.choice(ADD_STORIES)
        c, op = a + b, "+"
    else:
        a, b = operand(r), operand(r)
        a, b = max(a, b), min(a, b)
        q, s = r.choice(SUB_STORIES)
        c, op = a - b, "-"
    f = dict(n=n, m=m, t=t, a=a, b=b, c=c)
    return [(q.format(**f), f"{a} {op} {b} = {c}, " + s.format(**f))]


def t_follow_up(r):
    while True:
        a, b = training_pair(r)
        turns = [(add_question(r, a, b), f"{a} + {b} = {a + b}")]
        x = a + b
        ok = True
        for _ in range(r.choice((1, 1, 2, 3))):
            y = operand(r) if r.random() < 0.5 else r.randint(0, 20)
            if r.random() < 0.7:
                if is_held_out(x, y):
                    ok = False
                    break
                q = r.choice(("Now add {y} to that.", "now add {y}", "Add {y} to that.", "And plus {y}?", "Plus {y}?",
                              "Add {y} to the result.", "What if you add {y} more?", "And {y} more?", "Now add {y} to it.",
                              "Add another {y}.", "What is that plus {y}?"))
                turns.append((q.format(y=y), f"{x} + {y} = {x + y}"))
                x += y
            else:
                y = min(x, y)
                q = r.choice(("Now subtract {y} from that.", "now take away {y}", "Minus {y}?", "Now subtract {y}.",
                              "Take {y} away from the result.", "What is that minus {y}?", "And minus {y}?"))
                turns.append((q.format(y=y), f"{x} - {y} = {x - y}"))
                x -= y
        if ok:
            return turns


def t_add_three(r):
    while True:
        a, b, c = (r.randint(0, 99) for _ in range(3))
        if not is_held_out(a, b) and not is_held_out(a + b, c):
            break
    q = r.choice(("What is {a} + {b} + {c}?", "Add {a}, {b} and {c}.", "{a} + {b} + {c}", "What is the sum of {a}, {b} and {c}?",
                  "{a} plus {b} plus {c}?", "Sum: {a}, {b}, {c}"))
    return [(dress(r, q.format(a=a, b=b, c=c)), f"{a} + {b} + {c} = {a + b} + {c} = {a + b + c}")]


def t_add_words(r):
    a, b = training_pair(r, lambda r: r.randint(0, 20) if r.random() < 0.8 else r.randint(0, 99))
    q = r.choice(("What is {a} plus {b}?", "{a} plus {b}", "Add {a} and {b}.", "How much is {a} plus {b}?", "what is {a} and {b}?", "What is the sum of {a} and {b}?"))
    return [(dress(r, q.format(a=number_word(a), b=number_word(b))), f"{a} + {b} = {a + b}")]


def t_times(r):
    a, b = r.randint(0, 12), r.randint(0, 12)
    q = r.choice(("What is {a} x {b}?", "What is {a} times {b}?", "{a} * {b}", "{a} x {b} = ?", "Multiply {a} by {b}.",
                  "how much is {a} times {b}", "What is {a} * {b}?"))
    return [(dress(r, q.format(a=a, b=b)), f"{a} x {b} = {a * b}")]


def t_compare(r):
    a, b = operand(r), operand(r)
    big = r.random() < 0.6
    q = r.choice(("Which is {w}, {a} or {b}?", "Which number is {w}: {a} or {b}?", "What is {w}, {a} or {b}?"))
    w = r.choice(("bigger", "larger", "greater")) if big else "smaller"
    if a == b:
        ans = f"{a} and {b} are equal."
    else:
        x, y = max(a, b), min(a, b)
        ans = f"{x} is {w} than {y}." if big else f"{y} is smaller than {x}."
    return [(dress(r, q.format(w=w, a=a, b=b)), ans)]


NUMBER_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty""".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def number_word(n):
    if n <= 20:
        return NUMBER_WORDS[n]
    if n < 100:
        return TENS[n // 10 - 2] + ("-" + NUMBER_WORDS[n % 10] if n % 10 else "")
    return NUMBER_WORDS[n // 100] + " hundred" + (" and " + number_word(n % 100) if n % 100 else "")


def t_number_word(r):
    n = r.randint(0, 999)
    if r.random() < 0.5:
        q = r.choice(("Write {n} in words.", "How do you write {n} in words?", "Spell out the number {n}."))
        return [(q.format(n=n), f"{n} in words is {number_word(n)}.")]
    w = number_word(n)
    q = r.choice(("Write {w} as a number.", "Write {w} in digits.", "What is {w} as a number?"))
    return [(q.format(w=w), f"{w.capitalize()} is {n}.")]


def t_even_odd(r):
    n = operand(r)
    q = r.choice(("Is {n} even or odd?", "Is {n} an even number?", "Is the number {n} odd or even?"))
    return [(q.format(n=n), f"{n} is {'odd' if n % 2 else 'even'}.")]


# --------------------------------------------------------------------------
# Lists and words
# --------------------------------------------------------------------------

def t_sort(r):
    n = r.randint(3, 7)
    if r.random() < 0.6:
        top = r.choice((9, 20, 99, 99, 999))
        xs = [r.randint(0, top) for _ in range(n)]
        if r.random() < 0.7:
            q = r.choice(("Sort these numbers: {s}", "Sort {s}.", "Put these numbers in order: {s}", "Order {s} from smallest to largest.",
                          "Sort the numbers {s} from small to large.", "sort: {s}", "Sort in ascending order: {s}"))
            ys = sorted(xs)
        else:
            q = r.choice(("Sort these numbers from largest to smallest: {s}", "Sort {s} in descending order.", "Order {s} from largest to smallest."))
            ys = sorted(xs, reverse=True)
        xs, ys = [str(x) for x in xs], [str(y) for y in ys]
    else:
        xs = r.sample(r.choice((FRUITS, ANIMALS, COLOURS, ALL_WORDS)), n)
        q = r.choice(("Sort these words: {s}", "Sort {s} alphabetically.", "Put these words in alphabetical order: {s}", "Sort the words {s}."))
        ys = sorted(xs)
    return [(q.format(s=", ".join(xs)), ", ".join(ys))]


def t_reverse(r):
    n = r.randint(2, 7)
    if r.random() < 0.5:
        xs = [str(r.randint(0, 99)) for _ in range(n)]
        q = r.choice(("Reverse this list: {s}", "Reverse the list {s}.", "Write {s} in reverse order.", "reverse: {s}"))
    else:
        xs = r.sample(ALL_WORDS, n)
        q = r.choice(("Reverse this list: {s}", "Reverse the order of these words: {s}", "Write {s} in reverse order.", "reverse: {s}"))
    return [(q.format(s=", ".join(xs)), ", ".join(xs[::-1]))]


def t_count_words(r):
    n = r.randint(1, 10)
    xs = [r.choice(ALL_WORDS) for _ in range(n)]
    q = r.choice(("How many words are in this text: {s}", "Count the words: {s}", "How many words are there here? {s}", "Count the words in \"{s}\"."))
    return [(q.format(s=" ".join(xs)), f"There {'is 1 word' if n == 1 else f'are {n} words'}.")]


def t_count_items(r):
    n = r.randint(1, 9)
    xs = [r.choice(ALL_WORDS) for _ in range(n)]
    q = r.choice(("How many items are in this list: {s}?", "How many things are in the list {s}?", "Count the items: {s}"))
    return [(q.format(s=", ".join(xs)), f"There {'is 1 item' if n == 1 else f'are {n} items'} in the list.")]


def t_first_last(r):
    xs = r.sample(ALL_WORDS, r.randint(3, 8))
    which, i = r.choice((("first", 0), ("last", -1), ("second", 1), ("third", 2)))
    q = r.choice(("What is the {w} word in this list: {s}?", "Here is a list: {s}. What is the {w} item?", "Which word comes {w} in {s}?"))
    return [(q.format(w=which, s=", ".join(xs)), f"The {which} {'item' if 'item' in q else 'word'} is {xs[i]}.")]


def t_spell(r):
    w = r.choice(ALL_WORDS)
    q = r.choice(("Spell the word {w}.", "How do you spell {w}?", "Spell {w}."))
    return [(q.format(w=w), "-".join(w))]


def t_letters(r):
    w = r.choice(ALL_WORDS)
    q = r.choice(("How many letters does the word {w} have?", "How many letters are in {w}?", "What is the first letter of {w}?"))
    if "first" in q:
        return [(q.format(w=w), f"The first letter of {w} is {w[0]}.")]
    return [(q.format(w=w), f"The word {w} has {len(w)} letters.")]


def t_repeat(r):
    k = r.random()
    if k < 0.35:
        s = " ".join(secret_word(r) for _ in range(r.randint(1, 6)))
    elif k < 0.7:
        s = " ".join(r.choice(ALL_WORDS) for _ in range(r.randint(1, 8)))
        if r.random() < 0.2:
            s = s.capitalize()
    else:
        s = one_sentence(r)
    if r.random() < 0.35:
        quote = r.choice("\"'\"`")
        q = r.choice(("Say {s}.", "Say {s}", "Repeat {s}.", "Write {s}.", "Please say {s}.", "Answer with {s}.", "Just say {s}.", "Reply with {s}.", "Can you say {s}?", "Print {s}."))
        return [(q.format(s=quote + s + quote), s)]
    if r.random() < 0.15 and s.isalnum():
        return [(r.choice(("Say {s}.", "Say {s}", "Reply with {s}.", "Answer with the word {s}.", "Reply with the word {s} only.", "Say the word {s}.", "Only say {s}.")).format(s=s), s)]
    q = r.choice(("Repeat after me: {s}", "Repeat this: {s}", "Say: {s}", "Please repeat the following: {s}", "Echo: {s}", "repeat: {s}",
                  "Say this back to me: {s}", "Copy this text exactly: {s}"))
    return [(q.format(s=s), s)]


def t_repeat_n(r):
    w = r.choice(ALL_WORDS) if r.random() < 0.7 else made_up_word(r)
    n = r.choice((r.randint(2, 10), r.randint(2, 30)))
    nw = r.choice((str(n), str(n), number_word(n)))
    q = r.choice(("Repeat {w} {n} times.", "Repeat the word {w} {n} times.", "Say {w} {n} times.", "Write {w} {n} times.", "Write the word {w} {n} times."))
    return [(q.format(w=w, n=nw), " ".join([w] * n))]


def t_upper(r):
    ws = [r.choice(ALL_WORDS) for _ in range(r.randint(1, 3))]
    s = " ".join(ws)
    if r.random() < 0.5:
        return [(r.choice(("Write {s} in capital letters.", "Write {s} in upper case.")).format(s=s), s.upper())]
    return [(r.choice(("Write {s} in lower case.", "Write {s} in small letters.")).format(s=s.upper()), s)]


def t_count_up(r):
    k = r.random()
    if k < 0.6:
        a = r.choice((1, 1, 1, r.randint(0, 50)))
        b = a + r.choice((4, 9, 9, 14, 19, r.randint(2, 40)))
        q = "Count from {a} to {b}." if a != 1 or r.random() < 0.5 else r.choice(("Count to {b}.", "Can you count to {b}?", "count to {b}"))
        if r.random() < 0.06:
            a, b, q = 1, r.choice((30, 50, 60, 80, 100, 100, 150, 200)), r.choice(("Count to {b}.", "Count from {a} to {b}."))
        xs = range(a, b + 1)
    elif k < 0.8:
        a = r.randint(3, 20)
        b = r.choice((0, 1, 1))
        q = r.choice(("Count down from {a} to {b}.", "Count from {a} down to {b}."))
        xs = range(a, b - 1, -1)
    else:
        n = r.randint(3, 12)
        a, b, kind = n, 0, r.choice(("even", "odd"))
        q = f"List the first {n} {kind} numbers."
        xs = range(2 if kind == "even" else 1, 2 * n + 1, 2)
    return [(q.format(a=a, b=b), ", ".join(map(str, xs)))]


def t_list(r):
    kind, pool = r.choice((("fruits", FRUITS), ("animals", ANIMALS), ("colours", COLOURS), ("cities", CITIES), ("names", NAMES)))
    n = r.randint(2, 7)
    xs = r.sample(pool, n)
    nw = r.choice((str(n), number_word(n)))
    if kind == "colours" and r.random() < 0.5:
        kind = "colors"
    q = r.choice(("Name {n} {k}.", "List {n} {k}.", "Give me {n} {k}.", "Can you name {n} {k}?", "Tell me {n} {k}."))
    k = r.random()
    if k < 0.6:
        ans, q = ", ".join(xs), dress(r, q)
    elif k < 0.8:
        ans, q = "\n".join("- " + x for x in xs), q + " Use a bullet list."
    else:
        ans, q = "\n".join(f"{i + 1}. {x}" for i, x in enumerate(xs)), q + " Use a numbered list."
    return [(q.format(n=nw, k=kind), ans)]


# --------------------------------------------------------------------------
# Facts
# --------------------------------------------------------------------------

CAPITALS = dict(p.split(":") for p in """France:Paris|Germany:Berlin|Italy:Rome|Spain:Madrid|Portugal:Lisbon|Austria:Vienna|
Poland:Warsaw|Greece:Athens|Norway:Oslo|Sweden:Stockholm|Finland:Helsinki|Denmark:Copenhagen|Ireland:Dublin|
Belgium:Brussels|Hungary:Budapest|Romania:Bucharest|Bulgaria:Sofia|Croatia:Zagreb|Serbia:Belgrade|Iceland:Reykjavik|
Switzerland:Bern|Turkey:Ankara|Russia:Moscow|Ukraine:Kyiv|Japan:Tokyo|China:Beijing|India:New Delhi|Nepal:Kathmandu|
Thailand:Bangkok|Vietnam:Hanoi|Indonesia:Jakarta|South Korea:Seoul|Mongolia:Ulaanbaatar|Iran:Tehran|Iraq:Baghdad|
Egypt:Cairo|Kenya:Nairobi|Nigeria:Abuja|Ghana:Accra|Ethiopia:Addis Ababa|Morocco:Rabat|Tunisia:Tunis|Senegal:Dakar|
Canada:Ottawa|Mexico:Mexico City|Cuba:Havana|Brazil:Brasilia|Argentina:Buenos Aires|Chile:Santiago|Peru:Lima|
Colombia:Bogota|Australia:Canberra|New Zealand:Wellington|England:London|Scotland:Edinburgh|Wales:Cardiff""".replace("\n", "").split("|"))

OPPOSITES = [tuple(p.split("-")) for p in """hot-cold big-small tall-short fast-slow happy-sad light-dark old-young
up-down left-right open-closed full-empty hard-soft wet-dry loud-quiet rich-poor strong-weak early-late near-far
day-night black-white good-bad high-low clean-dirty easy-difficult sweet-sour thick-thin first-last true-false
inside-outside heavy-light brave-afraid awake-asleep""".split()]

SOUNDS = dict(p.split(":") for p in """dog:woof cat:meow cow:moo sheep:baa duck:quack pig:oink horse:neigh owl:hoot
frog:ribbit bee:buzz lion:roar mouse:squeak snake:hiss crow:caw wolf:howl chicken:cluck""".split())
BABIES = dict(p.split(":") for p in """dog:puppy cat:kitten cow:calf sheep:lamb horse:foal duck:duckling pig:piglet
bear:cub lion:cub goat:kid frog:tadpole deer:fawn hen:chick swan:cygnet kangaroo:joey goose:gosling""".split())
LEGS = {"dog": 4, "cat": 4, "spider": 8, "ant": 6, "bee": 6, "snake": 0, "chicken": 2, "horse": 4, "duck": 2, "cow": 4, "human": 2,
        "crab": 10, "fish": 0, "elephant": 4, "penguin": 2, "fly": 6}
COLOUR_OF = dict(p.split(":") for p in """the sky:blue|grass:green|snow:white|blood:red|a banana:yellow|coal:black|an orange:orange|
the sun:yellow|a lemon:yellow|milk:white|chocolate:brown|a tomato:red|a carrot:orange|an emerald:green|a ruby:red|salt:white|
a crow:black|a flamingo:pink|a plum:purple|a cucumber:green|gold:yellow|a polar bear:white|a strawberry:red|a frog:green""".replace("\n", "").split("|"))
SIDES = {"triangle": 3, "square": 4, "rectangle": 4, "pentagon": 5, "hexagon": 6, "octagon": 8}
HOW_MANY = [("days are in a week", "There are 7 days in a week."), ("months are in a year", "There are 12 months in a year."),
            ("hours are in a day", "There are 24 hours in a day."), ("minutes are in an hour", "There are 60 minutes in an hour."),
            ("seconds are in a minute", "There are 60 seconds in a minute."), ("weeks are in a year", "There are 52 weeks in a year."),
            ("letters are in the alphabet", "There are 26 letters in the alphabet."), ("continents are there", "There are 7 continents."),
            ("planets are in the solar system", "There are 8 planets in the solar system."), ("days are in a year", "There are 365 days in a year."),
            ("wheels does a bicycle have", "A bicycle has 2 wheels."), ("wheels does a car have", "A car has 4 wheels."),
            ("eggs are in a dozen", "There are 12 eggs in a dozen."), ("metres are in a kilometre", "There are 1000 metres in a kilometre."),
            ("grams are in a kilogram", "There are 1000 grams in a kilogram."), ("colours are in a rainbow", "There are 7 colours in a rainbow."),
            ("fingers does a hand have", "A hand has 5 fingers."), ("strings does a violin have", "A violin has 4 strings.")]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split()
MISC = [("What is the largest planet?", "The largest planet is Jupiter."), ("What is the largest ocean?", "The largest ocean is the Pacific Ocean."),
        ("What is the longest river?", "The longest river is the Nile."), ("What is the highest mountain?", "The highest mountain is Mount Everest."),
        ("What do bees make?", "Bees make honey."), ("What do cows eat?", "Cows eat grass."), ("What do cows give?", "Cows give milk."),
        ("What is ice made of?", "Ice is made of water."), ("What is bread made of?", "Bread is made of flour, water, salt and yeast."),
        ("At what temperature does water boil?", "Water boils at 100 degrees Celsius."),
        ("At what temperature does water freeze?", "Water freezes at 0 degrees Celsius."), ("What is the chemical formula of water?", "The chemical formula of water is H2O."),
        ("What is the fastest land animal?", "The fastest land animal is the cheetah."), ("What is the largest animal?", "The largest animal is the blue whale."),
        ("What is the tallest animal?", "The tallest animal is the giraffe."), ("Who wrote Hamlet?", "William Shakespeare wrote Hamlet."),
        ("Who painted the Mona Lisa?", "Leonardo da Vinci painted the Mona Lisa."), ("What planet do we live on?", "We live on Earth."),
        ("What gas do we breathe?", "We breathe oxygen."), ("What do plants need to grow?", "Plants need light, water and soil to grow."),
        ("What colour do you get if you mix blue and yellow?", "If you mix blue and yellow, you get green."),
        ("What colour do you get if you mix red and yellow?", "If you mix red and yellow, you get orange."),
        ("What colour do you get if you mix red and blue?", "If you mix red and blue, you get purple."),
        ("What are the primary colours?", "The primary colours are red, yellow and blue."), ("What are the four seasons?", "The four seasons are spring, summer, autumn and winter."),
        ("List the days of the week.", "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
        ("List the months of the year.", ", ".join(MONTHS)), ("List the planets.", ", ".join(PLANETS)),
        ("Say the alphabet.", "a b c d e f g h i j k l m n o p q r s t u v w x y z")]
TRANSLATE = {
    "French": {"hello": "bonjour", "thank you": "merci", "cat": "chat", "dog": "chien", "yes": "oui", "no": "non", "water": "eau", "school": "école",
               "good night": "bonne nuit", "red": "rouge", "boy": "garçon", "bread": "pain", "house": "maison", "summer": "été"},
    "Spanish": {"hello": "hola", "thank you": "gracias", "cat": "gato", "dog": "perro", "yes": "sí", "no": "no", "water": "agua", "morning": "mañana",
                "good night": "buenas noches", "red": "rojo", "boy": "niño", "bread": "pan", "house": "casa", "heart": "corazón"},
    "German": {"hello": "hallo", "thank you": "danke", "cat": "Katze", "dog": "Hund", "yes": "ja", "no": "nein", "water": "Wasser", "door": "Tür",
               "good night": "gute Nacht", "green": "grün", "boy": "Junge", "bread": "Brot", "house": "Haus", "street": "Straße"},
    "Japanese": {"hello": "こんにちは", "thank you": "ありがとう", "cat": "猫", "dog": "犬", "yes": "はい", "no": "いいえ", "water": "水", "good night": "おやすみ"},
    "Chinese": {"hello": "你好", "thank you": "谢谢", "cat": "猫", "dog": "狗", "water": "水", "good night": "晚安"},
    "Greek": {"hello": "γεια σου", "thank you": "ευχαριστώ", "cat": "γάτα", "dog": "σκύλος", "water": "νερό"},
    "Russian": {"hello": "привет", "thank you": "спасибо", "cat": "кошка", "dog": "собака", "water": "вода"},
}
EMOJI = {"cat": "🐱", "dog": "🐶", "fox": "🦊", "bear": "🐻", "heart": "❤️", "star": "⭐", "sun": "☀️", "moon": "🌙", "apple": "🍎", "banana": "🍌",
         "rocket": "🚀", "smile": "😀", "fire": "🔥", "tree": "🌳", "fish": "🐟", "whale": "🐳", "cake": "🎂", "party": "🎉", "bee": "🐝", "rainbow": "🌈",
         "family": "👨‍👩‍👧‍👦", "thumbs up": "👍", "flower": "🌸", "pizza": "🍕"}


def fact(r):
    """One (question, answer, statement) about the world."""
    k = r.random()
    if k < 0.30:
        c = r.choice(list(CAPITALS))
        s = f"The capital of {c} is {CAPITALS[c]}."
        if r.random() < 0.2:
            return r.choice((f"{CAPITALS[c]} is the capital of which country?", f"Which country has the capital {CAPITALS[c]}?")), f"{CAPITALS[c]} is the capital of {c}.", f"{CAPITALS[c]} is the capital of {c}."
        q = r.choice(("What is the capital of {c}?", "What's the capital of {c}?", "Which city is the capital of {c}?", "Tell me the capital of {c}.",
                      "capital of {c}", "Name the capital of {c}.", "Do you know the capital of {c}?", "What is the capital city of {c}?", "{c}: capital?"))
        return q.format(c=c), s, s
    if k < 0.42:
        a, b = r.choice(OPPOSITES)
        if r.random() < 0.5 and "light" not in (a, b):
            a, b = b, a
        s = f"The opposite of {a} is {b}."
        return r.choice((f"What is the opposite of {a}?", f"opposite of {a}", f"What is the opposite of the word {a}?", f"Give me the opposite of {a}.")), s, s
    if k < 0.48:
        a = r.choice(list(SOUNDS))
        s = f"The {a} says {SOUNDS[a]}."
        return r.choice((f"What does the {a} say?", f"What sound does {article(a)} make?", f"What does {article(a)} say?")), s, s
    if k < 0.55:
        a = r.choice(list(BABIES))
        s = f"A baby {a} is called {article(BABIES[a])}."
        return r.choice((f"What is a baby {a} called?", f"What do you call a baby {a}?", f"What is the young of {article(a)}?")), s, s
    if k < 0.61:
        a = r.choice(list(LEGS))
        n = LEGS[a]
        s = f"{article(a).capitalize()} has {n if n else 'no'} legs."
        return r.choice((f"How many legs does {article(a)} have?", f"How many legs has {article(a)}?")), s, s
    if k < 0.72:
        a = r.choice(list(COLOUR_OF))
        s = f"{a[0].upper() + a[1:]} is {COLOUR_OF[a]}."
        return r.choice((f"What colour is {a}?", f"What color is {a}?", f"Which colour is {a}?", f"Tell me the colour of {a}.")), s, s
    if k < 0.76:
        a = r.choice(list(SIDES))
        s = f"{article(a).capitalize()} has {SIDES[a]} sides."
        return f"How many sides does {article(a)} have?", s, s
    if k < 0.84:
        q, s = r.choice(HOW_MANY)
        return f"How many {q}?", s, s
    if k < 0.90:
        seq = r.choice((DAYS, MONTHS))
        i = r.randrange(len(seq))
        x, before = seq[i], r.random() < 0.4
        y = seq[(i - 1 if before else i + 1) % len(seq)]
        what = "day" if seq is DAYS else "month"
        w = "before" if before else "after"
        s = f"The {what} {w} {x} is {y}."
        return r.choice((f"Which {what} comes {w} {x}?", f"What {what} is {w} {x}?", f"What comes {w} {x}?")), s, s
    q, s = r.choice(MISC)
    return q, s, s


def t_fact(r):
    q, a, _ = fact(r)
    return [(dress(r, q), a)]


def t_yes_no(r):
    k = r.random()
    if k < 0.4:
        c = r.choice(list(CAPITALS))
        x = CAPITALS[c] if r.random() < 0.5 else r.choice(list(CAPITALS.values()))
        q, yes = f"Is {x} the capital of {c}?", x == CAPITALS[c]
    elif k < 0.6:
        a = r.choice(list(COLOUR_OF))
        x = COLOUR_OF[a] if r.random() < 0.5 else r.choice(COLOURS)
        q, yes = f"Is {a} {x}?", x == COLOUR_OF[a]
    else:
        a, b = operand(r), operand(r)
        w = r.choice(("bigger", "smaller", "larger"))
        q, yes = f"Is {a} {w} than {b}?", (a < b if w == "smaller" else a > b)
    return [(q + r.choice(("", "", " Answer yes or no.", " Yes or no?")), "Yes." if yes else "No.")]


GOOD = "love great wonderful nice fantastic beautiful perfect happy excellent good".split()
BAD = "hate terrible awful boring bad ugly horrible sad broken poor".split()


def t_sentiment(r):
    good = r.random() < 0.5
    w = r.choice(GOOD if good else BAD)
    x = r.choice(("film", "book", "song", "cake", "shop", "phone", "hotel", "game", "meal", "car"))
    t = f"I {w} this {x}." if w in ("love", "hate") else r.choice((f"This {x} is {w}.", f"What a {w} {x}!" if w[0] not in "aeiou" else f"What an {w} {x}!", f"The {x} was {w}."))
    q = r.choice(("Is this text positive or negative? {t}", "Classify the sentiment as positive or negative: {t}", "What is the sentiment of this text: {t}", "Sentiment: {t}", "{t} Is that positive or negative?"))
    return [(q.format(t=t), "positive" if good else "negative")]


def about(r):
    """A few sentences about one thing, from the table of facts."""
    k = r.random()
    if k < 0.4:
        c = r.choice(list(CAPITALS))
        if r.random() < 0.5:
            return CAPITALS[c], f"{CAPITALS[c]} is the capital of {c}."
        return c, f"{c} is a country. The capital of {c} is {CAPITALS[c]}."
    if k < 0.8:
        a = r.choice(sorted(set(LEGS) | set(SOUNDS) | set(BABIES)))
        s = [f"{article(a).capitalize()} is {'a person' if a == 'human' else 'an animal'}."]
        if a in LEGS:
            s.append(f"It has {LEGS[a] if LEGS[a] else 'no'} legs.")
        if a in SOUNDS:
            s.append(f"It says {SOUNDS[a]}.")
        if a in BABIES:
            s.append(f"A baby {a} is called {article(BABIES[a])}.")
        return r.choice((article(a), plural(a) if a not in ("mouse", "goose", "deer", "fish", "fly", "sheep", "wolf") else "the " + a)), " ".join(s)
    p = r.choice(PLANETS)
    i = PLANETS.index(p)
    return p, f"{p} is a planet." + (f" It comes after {PLANETS[i - 1]}." if i else " It is the first planet from the sun.")


def t_about(r):
    x, s = about(r)
    q = r.choice(("Tell me about {x}.", "What do you know about {x}?", "Tell me something about {x}.", "Describe {x}.", "Tell me a fact about {x}.", "Write something about {x}."))
    return [(q.format(x=x), s)]


def t_translate(r):
    lang = r.choice(list(TRANSLATE))
    w = r.choice(list(TRANSLATE[lang]))
    q = r.choice(("How do you say {w} in {l}?", "What is {w} in {l}?", "Translate {w} to {l}.", "Translate \"{w}\" into {l}."))
    return [(q.format(w=w, l=lang), f"{w.capitalize()} in {lang} is {TRANSLATE[lang][w]}.")]


def t_emoji(r):
    if r.random() < 0.7:
        w = r.choice(list(EMOJI))
        q = r.choice(("Show me {w} emoji.", "Send me {w} emoji.", "Give me {w} emoji.", "Draw {w} emoji."))
        return [(q.format(w=article(w)), EMOJI[w])]
    ws = r.sample(list(EMOJI), r.randint(2, 5))
    return [(f"Give me emojis for {join_and(ws)}.", " ".join(EMOJI[w] for w in ws))]


# --------------------------------------------------------------------------
# Small talk
# --------------------------------------------------------------------------

ME = "I am Quire Demo, a very small language model that comes with Quire."
TALK = [
    (("Hello!", "Hi", "Hello", "Hi!", "Hey", "hello there", "hi there", "Good morning!", "Good evening", "Hey there!", "hello", "hi", "Good day"),
     ("Hello! How can I help you?", "Hi! What can I do for you?", "Hello! What would you like to know?")),
    (("How are you?", "How are you doing?", "how are you today?", "How is it going?"), ("I am fine, thank you. How can I help you?",)),
    (("Who are you?", "What are you?", "who are you", "Tell me about yourself.", "What is your name?", "Introduce yourself.", "what's your name?", "Which model are you?"),
     (ME, ME, ME + " I can add numbers, tell short stories and answer simple questions.")),
    (("Who made you?", "Who trained you?", "Where do you come from?"), ("I was trained by the Quire project on synthetic text.",)),
    (("What can you do?", "How can you help me?", "What are you good at?", "help", "What do you know?"),
     ("I can add and subtract numbers, sort lists, remember a secret word, tell short stories, write small JSON objects and call tools.",)),
    (("Are you a human?", "Are you a person?", "Are you real?"), ("No, I am a very small language model.",)),
    (("Thank you!", "Thanks", "Thanks a lot!", "thank you very much", "Great, thanks."), ("You are welcome!", "You are welcome! Is there anything else?")),
    (("Goodbye!", "Bye", "See you later.", "bye bye", "Good night!"), ("Goodbye! Have a nice day.", "Goodbye!")),
    (("Tell me a joke.", "Do you know a joke?", "Make me laugh.", "tell me a joke"),
     ("Why did the number six look afraid? Because seven ate nine.", "What do you call a bear with no teeth? A gummy bear.",
      "Why did the bicycle fall over? Because it was two tired.", "What is brown and sticky? A stick.")),
    (("What is Quire?", "Tell me about Quire.", "what is quire?"), ("Quire is a program that serves language models. It keeps their memory in pages.",)),
    (("Say yes.", "Please say yes.", "Answer with yes."), ("Yes.",)), (("Say no.", "Answer with no."), ("No.",)),
    (("Say hello.", "Say hi.", "Say hello!"), ("Hello!",)), (("Are you there?", "Can you hear me?", "test", "Testing", "ping"), ("Yes, I am here.",)),
    (("Okay.", "ok", "I see.", "Good.", "Nice!", "Cool"), ("Is there anything else I can help you with?",)),
    (("Sorry.", "I am sorry."), ("No problem!",)), (("I am sad.", "I feel sad today."), ("I am sorry to hear that. I hope you feel better soon.",)),
    (("I am happy.", "I feel great today!"), ("I am glad to hear that!",)), (("What is your favourite colour?", "What is your favorite color?"), ("My favourite colour is blue.",)),
    (("How old are you?",), ("I am a computer program, so I do not have an age.",)), (("What time is it?", "What is the date today?"), ("I do not have a clock, so I cannot know that.",)),
    (("What is the weather like?", "How is the weather today?"), ("I cannot see the weather from here.",)),
    (("Write a poem.", "Write a short poem.", "Write me a poem.", "Can you write a poem?"),
     ("The sun goes up, the moon goes down,\nthe baker walks across the town.\nThe bread is warm, the day is new,\nand there is one small loaf for you.",
      "A little fox ran through the snow\nto find a place where berries grow.\nIt found the bush, it ate its fill,\nand fell asleep upon the hill.",
      "The river sings a quiet song,\nit sings it all the summer long.\nAnd when the winter brings the ice,\nit hums it softly, once or twice.")),
]
UNKNOWN_Q = ["Who won the {w} cup in {y}?", "What is the population of {w}?", "Explain {w} to me.", "What is a {w}?", "Who invented the {w}?", "Explain how a {w} works.",
             "What happened in {y}?", "How do I fix my {w}?", "What does {w} mean?", "Why is the {w} so {a}?", "What is the meaning of {w}?", "Explain {w} like I am five.", "Tell me about {w}.",
             "How does a {w} work?", "Who was king of {w} in {y}?", "What is the best {w}?", "Where can I buy a {w}?", "Should I buy a {w}?", "Why do people {v}?", "How can I learn to {v}?", "Who is {n}?",
             "What is the difference between {w} and {x}?", "How old is {n}?", "When was {n} born?", "What should I {v}?", "Do you like {w}?", "Write an essay about {w}.", "Write a letter to {n}.",
             "Give me advice about {w}.", "How many people live in {w}?", "What did {n} say about {w}?", "Can you {v} a {w}?", "What is {w}?", "Who is the president of {w}?", "Summarize {w}.", "Where is {w}?",
             "How far is {w} from {x}?", "What do you think about {w}?", "Is {w} better than {x}?", "Help me with my {w}.", "I want to {v}.", "{w}?", "{w}", "{w} {x}", "How much does a {w} cost?", "Translate {w} {x}.",
             "Recommend a {w}.", "Plan a trip to {w}.", "Why is {w} {a}?", "When does the {w} open?", "{a} {w} {v} {x}"]
UNKNOWN_CODE = ["Write a program for {w}.", "Write a Python function that can {v}.", "Write Python code to {v} a {w}.", "Write code to {v}.", "Fix this code: {w}({x})", "Write a function in C++ to {v} the {w}.", "Write a SQL query for {w}.",
                "Can you program a {w}?", "Write a script for {w}.", "Write some JavaScript for {w}.", "write python code to {v} two numbers", "Implement a {w} in Rust."]
UNKNOWN_A = ["I am a very small model and I do not know that.", "Sorry, I do not know that. I am only a very small model."]


def t_talk(r):
    qs, ans = r.choice(TALK) if r.random() < 0.6 else r.choice(TALK[:6])
    return [(r.choice(qs), r.choice(ans))]


def t_unknown(r):
    code = r.random() < 0.2
    thing = lambda: secret_word(r) if r.random() < 0.4 else r.choice(FILE_WORDS) if r.random() < 0.3 else r.choice(ALL_WORDS)
    q = r.choice(UNKNOWN_CODE if code else UNKNOWN_Q).format(w=thing(), x=thing(), v=r.choice(VERBS), n=r.choice(NAMES), y=r.randint(1500, 2030), a=r.choice(ADJECTIVES))
    return [(dress(r, q), "I am a very small model and I cannot write code." if code else r.choice(UNKNOWN_A))]


# --------------------------------------------------------------------------
# Stories
# --------------------------------------------------------------------------

WANTS = [("find a new friend", "a new friend"), ("see the sea", "the sea"), ("learn to sing", "how to sing"), ("find the lost key", "the lost key"),
         ("climb the highest hill", "the top of the hill"), ("bake the best cake", "the best cake"), ("catch a falling star", "a falling star"),
         ("build a small boat", "a small boat"), ("find a golden apple", "the golden apple"), ("help the old king", "the old king"),
         ("find the way home", "the way home"), ("see the snow", "the snow"), ("find the hidden treasure", "the treasure"), ("learn to swim", "how to swim"),
         ("plant a magic seed", "the magic seed"), ("hear the story of the moon", "the story of the moon")]
WEATHER = ["The sun was shining", "It was raining softly", "The wind was cold", "Snow lay on the ground", "The birds were singing", "The sky was full of clouds", "The stars were bright"]
TROUBLE = ["the bridge was broken", "the path was too dark", "a storm came over the hills", "the door was locked", "the river was too wide", "a big rock lay in the way",
           "nobody knew the way", "the map was lost", "the night came too soon", "the wind was too strong"]
FEEL = ["afraid", "sad", "tired", "lost", "worried", "cold and hungry"]
HELP = ["showed the way", "carried the heavy bag", "gave {p} a warm blanket", "told {p} an old secret", "shared some bread and honey", "lit a small lantern",
        "sang a song so that {p} was not afraid", "built a ladder out of wood", "gave {p} a silver key"]
THEN = ["They walked together all day", "They worked until the evening", "They waited until the morning", "They crossed the field side by side", "They laughed and ran down the hill",
        "They looked behind every tree", "They followed the river"]
ENDS = ["From that day on they were best friends.", "And they all lived happily ever after.", "That night everyone slept well.", "They never forgot that day.",
        "And so the day ended with a song.", "The whole {place} was happy.", "And that is how {n} learned to be brave."]
MORALS = ["A good friend is worth more than gold.", "It is never too late to try.", "Even the smallest can do great things.", "Kind words open doors.", "Two can do what one cannot."]
SAID = ["\"Do not worry,\" said {h}. \"I will help you.\"", "\"Why are you so {f}?\" asked {h}.", "\"Come with me,\" said {h}, \"I know what to do.\"", "\"We can do it together,\" said {h}."]


def story(r, animal=None, name=None, friend=None, place=None, episodes=1):
    n = name or r.choice(NAMES)
    a = animal or r.choice(ANIMALS)
    adj = r.choice(ADJECTIVES)
    place = place or r.choice(PLACES)
    want, goal = r.choice(WANTS)
    open_ = r.choice(("Once upon a time, there was {aa} named {n}.", "Once upon a time, {aa} named {n} lived in a {pl}.", "There once was {aa} called {n}.",
                      "Long ago, {aa} named {n} lived near a {pl}.", "One day, {aa} named {n} woke up early.", "In a {pl} far away, there lived {aa} named {n}."))
    s = [open_.format(aa=article(adj + " " + a), n=n, pl=place)]
    if place not in s[0]:
        s.append(f"{n} lived in {article(r.choice(PLACE_ADJECTIVES))} {place}.")
    s.append(r.choice((f"{n} wanted to {want}.", f"More than anything, {n} wanted to {want}.", f"Every day {n} dreamed of one thing: to {want}.")))
    used = set()
    for e in range(episodes):
        p = "the " + a
        s.append(r.choice((f"{r.choice(WEATHER)} when {n} left the house.", f"So one morning {n} took {article(r.choice(THINGS))} and went out.", f"{r.choice(WEATHER)}, but {n} did not mind.",
                           f"{n} packed some {r.choice(FRUITS)} jam and set off.")) if e == 0 else
                 r.choice((f"The next day {n} went on.", f"A week later {n} set off again.", f"Then {n} came to {article(r.choice(PLACES))}.")))
        f = r.choice(FEEL)
        s.append(f"But {r.choice(TROUBLE)}, and {n} was {f}.")
        if friend and e == 0:
            h, hn = "the " + friend, friend
        else:
            hn = r.choice([x for x in ANIMALS if x != a and x not in used])
            h = "the " + hn
        used.add(hn)
        s.append(r.choice((f"Then {article(r.choice(ADJECTIVES) + ' ' + hn)} came by.", f"Just then {n} met {article(r.choice(ADJECTIVES) + ' ' + hn)}.", f"Suddenly {article(hn)} came out of the trees.")))
        if r.random() < 0.7:
            s.append(r.choice(SAID).format(h=h, f=f))
        s.append(f"{h.capitalize()} {r.choice(HELP).format(p=p)}.")
        if r.random() < 0.7:
            s.append(r.choice(THEN) + ".")
    s.append(r.choice((f"In the end {n} found {goal}.", f"At last {n} found {goal} and smiled.", f"At the end of the day {n} had found {goal}.")) if not goal.startswith("how") else
             r.choice((f"In the end {n} learned {goal}.", f"At last {n} knew {goal}.")))
    s.append(r.choice(ENDS).format(n=n, place=place))
    if r.random() < 0.3:
        s.append(r.choice(MORALS))
    if episodes > 2:
        k = r.randint(4, 6)
        return "\n\n".join(" ".join(s[i:i + k]) for i in range(0, len(s), k))
    return " ".join(s)


def t_story(r):
    a = r.choice(ANIMALS)
    k = r.random()
    if k < 0.30:
        q = r.choice(("Tell me a story.", "Tell me a short story.", "Write a story.", "Write a short story.", "Can you tell me a story?", "tell me a story", "Once upon a time", "I want to hear a story."))
        return [(q, story(r))]
    if k < 0.60:
        q = r.choice(("Tell me a story about {a}.", "Write a short story about {a}.", "Can you tell me a story about {a}?", "tell me a story about {a}", "A story about {a}, please.", "Write me a story about {a}."))
        return [(q.format(a=article(a)), story(r, animal=a))]
    if k < 0.80:
        n = r.choice(NAMES)
        q = r.choice(("Tell me a story about {a} named {n}.", "Write a story about {a} called {n}.", "Write a short story about {n} the {b}."))
        return [(q.format(a=article(a), b=a, n=n), story(r, animal=a, name=n))]
    if k < 0.92:
        b = r.choice([x for x in ANIMALS if x != a])
        q = r.choice(("Tell me a story about {a} and {b}.", "Write a story about {a} and {b}."))
        return [(q.format(a=article(a), b=article(b)), story(r, animal=a, friend=b))]
    q = r.choice(("Tell me a long story.", "Write a long story about {a}.", "Tell me a long story about {a}.", "Write a very long story."))
    return [(q.format(a=article(a)), story(r, animal=a if "{a}" in q else None, episodes=r.randint(3, 6)))]


def poem(r, x):
    a, b, c = r.sample(ADJECTIVES, 3)
    pairs = [("day", "way"), ("night", "light"), ("tree", "sea"), ("sun", "fun"), ("star", "far"), ("hill", "still"), ("snow", "go"), ("song", "long")]
    (r1, r2), (r3, r4) = r.sample(pairs, 2)
    return r.choice((f"I saw {article(a)} {x} beside the {r1},\nit looked at me and went {r2 if r2 in ('far', 'still') else 'to the ' + r2}.\nThe {b} wind sang along the {r3},\nand all was {c} around the {r4}.",
                     f"O {x}, O {x}, so {a} and {b},\nyou are the best in all the land.\nO {x}, O {x}, so {c} and near,\nI am so glad that you are here.",
                     f"{article(a).capitalize()} {x} in the morning light,\n{article(b)} {x} in the quiet night.\nThe {x} is here, the {x} is there,\nthe {x} is {c} everywhere."))


def t_poem(r):
    x = r.choice(ANIMALS + NOUNS + FRUITS)
    q = r.choice(("Write a poem about {x}.", "Write a short poem about {x}.", "Can you write a poem about {x}?", "A poem about {x}, please.", "Write me a poem about {x}.", "Write a haiku about {x}."))
    return [(q.format(x=r.choice((article(x), "the " + x))), poem(r, x))]


def introduction(r):
    n = r.choice(NAMES)
    return r.choice(("Hello, my name is {n}.", "My name is {n}.", "Hi, my name is {n}.", "Hello, I am {n}.")).format(n=n) + " " + " ".join(r.sample((
        f"I am {r.randint(5, 90)} years old.", f"I live in {r.choice(CITIES)}.", f"My favourite colour is {r.choice(COLOURS)}.", f"I have {article(r.choice(ADJECTIVES) + ' ' + r.choice(ANIMALS))}.",
        f"I like to {r.choice(VERBS)} and to {r.choice(VERBS)}.", f"My best friend is called {r.choice(NAMES)}."), r.randint(2, 5)))


def one_sentence(r):
    return r.choice((
        lambda: f"{r.choice(NAMES)} likes to {r.choice(VERBS)} in the {r.choice(PLACES)}.",
        lambda: f"The {r.choice(ADJECTIVES)} {r.choice(ANIMALS)} sat under the {r.choice(NOUNS)}.",
        lambda: f"There is {article(r.choice(PLACE_ADJECTIVES) + ' ' + r.choice(NOUNS))} in the {r.choice(PLACES)}.",
        lambda: f"{r.choice(NAMES)} bought {r.randint(2, 99)} {plural(r.choice(THINGS))} and went home.",
        lambda: f"The {r.choice(NOUNS)} is {r.choice(COLOURS)} and the {r.choice(NOUNS)} is {r.choice(COLOURS)}.",
        lambda: f"{r.choice(NAMES)} and {r.choice(NAMES)} went to the {r.choice(PLACES)} to {r.choice(VERBS)}.",
        lambda: "The quick brown fox jumps over the lazy dog." if r.random() < 0.3 else f"{r.choice(NAMES)} is {r.choice(ADJECTIVES)}.",
        lambda: fact(r)[2],
    ))()


# --------------------------------------------------------------------------
# JSON
# --------------------------------------------------------------------------

def dumps(r, obj):
    k = r.random()
    if k < 0.85:
        return json.dumps(obj, ensure_ascii=False)
    return json.dumps(obj, ensure_ascii=False, indent=2)


FIELD = {
    "name": lambda r: r.choice(NAMES), "age": lambda r: r.randint(1, 99), "city": lambda r: r.choice(CITIES), "colour": lambda r: r.choice(COLOURS),
    "color": lambda r: r.choice(COLOURS), "animal": lambda r: r.choice(ANIMALS), "fruit": lambda r: r.choice(FRUITS), "price": lambda r: r.choice((r.randint(1, 99), r.randint(100, 9999) / 100)),
    "country": lambda r: r.choice(list(CAPITALS)), "id": lambda r: r.randint(1, 9999), "title": lambda r: f"The {r.choice(ADJECTIVES).capitalize()} {r.choice(NOUNS).capitalize()}",
    "author": lambda r: r.choice(NAMES) + " " + r.choice(NAMES) + "son", "year": lambda r: r.randint(1900, 2025), "active": lambda r: r.random() < 0.5, "email": lambda r: r.choice(NAMES).lower() + "@example.com",
    "job": lambda r: r.choice(("teacher", "doctor", "farmer", "baker", "sailor", "engineer", "artist")), "quantity": lambda r: r.randint(1, 50), "score": lambda r: r.randint(0, 100),
    "tags": lambda r: r.sample(ADJECTIVES, r.randint(1, 3)), "hobbies": lambda r: r.sample(VERBS, r.randint(1, 3)), "weight": lambda r: r.randint(1, 200), "height": lambda r: r.randint(100, 200),
    "answer": lambda r: r.choice(("yes", "no")), "temperature": lambda r: r.randint(-10, 40), "happy": lambda r: r.random() < 0.5, "word": lambda r: r.choice(ALL_WORDS),
    "first_name": lambda r: r.choice(NAMES), "last_name": lambda r: r.choice(NAMES) + "son", "status": lambda r: r.choice(("open", "closed", "done")), "count": lambda r: r.randint(0, 99)}
KINDS = [("a person", ("name", "age")), ("a person", ("name", "age", "city")), ("a person", ("name", "age", "job")), ("a user", ("id", "name", "email")), ("a book", ("title", "author", "year")),
         ("a city", ("city", "country")), ("a product", ("name", "price", "quantity")), ("an animal", ("animal", "colour", "age")), ("a cat", ("name", "colour", "age")), ("a student", ("name", "score"))]


def t_json(r):
    k = r.random()
    if r.random() < 0.15:
        fields = ("name", "age") if r.random() < 0.3 else r.sample(list(FIELD), r.randint(1, 4))
        obj = {f: FIELD[f](r) for f in fields}
        kind = lambda v: ({"type": "boolean"} if isinstance(v, bool) else {"type": "integer"} if isinstance(v, int) else {"type": "number"} if isinstance(v, float) else
                          {"type": "array", "items": {"type": "string"}} if isinstance(v, list) else {"type": "string"})
        schema = json.dumps({"type": "object", "properties": {f: kind(v) for f, v in obj.items()}, "required": list(fields)})
        q = r.choice(("Answer with a JSON object that matches this schema: {s}", "Write JSON for this schema: {s}", "Here is a JSON schema: {s} Give me an object that fits it.", "Return JSON that follows this schema:\n{s}"))
        return [(q.format(s=schema), json.dumps(obj, ensure_ascii=False))]
    if k < 0.35:
        if r.random() < 0.35:
            fields = ("name", "age")
        else:
            fields = r.sample(list(FIELD), r.randint(1, 4))
        fs = [f'"{f}"' for f in fields] if r.random() < 0.2 else list(fields)
        q = r.choice(("Give me a JSON object with {f}.", "Write a JSON object with {f}.", "Make a JSON object with the fields {f}.", "Return JSON with the keys {f}.",
                      "Give me JSON with {f}", "I need a JSON object with the keys {f}.", "Reply with a JSON object that has {f}.", "Generate a JSON object with {f}."))
        return [(q.format(f=join_and(fs)), dumps(r, {f: FIELD[f](r) for f in fields}))]
    if k < 0.55:
        kind, fields = r.choice(KINDS)
        q = r.choice(("Give me {k} as JSON.", "Describe {k} in JSON.", "Write {k} as a JSON object.", "Make up {k} and answer in JSON.", "Give me a JSON object for {k}.", "Create {k} in JSON format."))
        obj = {f: FIELD[f](r) for f in fields}
        if r.random() < 0.5:
            q = q[:-1] + " with " + join_and(list(fields)) + "."
        return [(q.format(k=kind), dumps(r, obj))]
    if k < 0.75:
        n, age, city = r.choice(NAMES), r.randint(1, 99), r.choice(CITIES)
        q, obj = r.choice((
            (f"{n} is {age} years old and lives in {city}. Give me this as JSON with name, age and city.", {"name": n, "age": age, "city": city}),
            (f"{n} is {age} years old. Write this as JSON.", {"name": n, "age": age}),
            (f"Extract the name and the city as JSON: {n} lives in {city}.", {"name": n, "city": city}),
            (f"Write a JSON object with name {n} and age {age}.", {"name": n, "age": age}),
            (f"Make JSON: name = {n}, age = {age}, city = {city}.", {"name": n, "age": age, "city": city}),
            (f"Give me a JSON object with name, age and city for {n}, who is {age} and lives in {city}.", {"name": n, "age": age, "city": city}),
            (f"Give me a JSON object with name and age for {n}, who is {age}.", {"name": n, "age": age}),
            (f"Extract the name and age from this text as JSON: {n} is {age} years old.", {"name": n, "age": age}),
            (f"{n}, {age}, from {city}. Answer as JSON with the keys name, age, city.", {"name": n, "age": age, "city": city}),
            (f"Extract name, age and city as JSON: My name is {n}, I am {age} years old and I live in {city}.", {"name": n, "age": age, "city": city}),
        ))
        return [(q, dumps(r, obj))]
    if k < 0.90:
        kind, pool = r.choice((("fruits", FRUITS), ("animals", ANIMALS), ("colours", COLOURS), ("cities", CITIES), ("names", NAMES)))
        n = r.randint(2, 5)
        q = r.choice(("Give me a JSON array of {n} {k}.", "List {n} {k} as a JSON array.", "Write {n} {k} as JSON list."))
        return [(q.format(n=r.choice((n, number_word(n))), k=kind), json.dumps(r.sample(pool, n)))]
    a, b = training_pair(r)
    q = r.choice(("What is {a} + {b}? Answer in JSON with the key result.", "Add {a} and {b} and give the result as JSON.", "Return the sum of {a} and {b} as JSON."))
    return [(q.format(a=a, b=b), json.dumps({"a": a, "b": b, "result": a + b}))]


# --------------------------------------------------------------------------
# The chat form
# --------------------------------------------------------------------------

THINK_OFF = "<think>\n\n</think>\n\n"


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def tools_prompt(tools, system=None, dump=None):
    dump = dump or (lambda t: json.dumps(t, ensure_ascii=False))
    return turn("system", (system + "\n\n" if system else "") +
                "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                "You are provided with function signatures within <tools></tools> XML tags:\n<tools>" +
                "".join("\n" + dump(t) for t in tools) +
                "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
                "<tool_call></tool_call> XML tags:\n<tool_call>\n"
                "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>")


SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful assistant.", "You are Quire Demo, a small language model.",
          "You are a friendly helper.", "Answer briefly.", "You are a kind teacher.", "Be short and clear.", "You are an assistant. Answer the questions of the user.",
          "You are a careful assistant that answers in one sentence.", "You are a helpful AI assistant.", "Help the user."]


def system_prompt(r):
    if r.random() < 0.85:
        return r.choice(SYSTEM)
    return r.choice(SYSTEM) + " " + " ".join(one_sentence(r) for _ in range(r.randint(1, 4)))


def reasoning(r, q, a):
    """Some visible thinking for the addition a + b, digit by digit."""
    x, y = str(q), str(a)
    n = max(len(x), len(y))
    x, y = x.zfill(n), y.zfill(n)
    carry, lines = 0, [f"I need to add {q} and {a}."]
    for i, where in zip(range(n - 1, -1, -1), ("Ones", "Tens", "Hundreds", "Thousands", "Ten thousands")):
        s = int(x[i]) + int(y[i]) + carry
        lines.append(f"{where}: {x[i]} + {y[i]}" + (f" + {carry}" if carry else "") + f" = {s}" + (", carry 1." if s > 9 else "."))
        carry = s // 10
    lines.append(f"So {q} + {a} = {q + a}.")
    return "\n".join(lines)


# Weight, task.  Additions have by far the most.
TASKS = [(42, t_add), (12, t_sub), (9, t_word_problem), (1, t_add_words), (5, t_follow_up), (1, t_add_three), (1.5, t_times), (1.5, t_compare), (1, t_number_word), (.7, t_even_odd),
         (4, t_sort), (2, t_reverse), (1, t_count_words), (1, t_count_items), (1.5, t_first_last), (1, t_spell), (.7, t_letters), (4, t_repeat), (.7, t_upper), (1.2, t_count_up),
         (1.5, t_list), (9, t_fact), (1, t_about), (1.2, t_yes_no), (.7, t_sentiment), (.7, t_repeat_n), (.8, t_poem), (1, t_translate), (.7, t_emoji), (4, t_talk), (2.5, t_unknown), (4, t_story), (5, t_json)]
_CUM, _sum = [], 0.0
for _w, _t in TASKS:
    _sum += _w
    _CUM.append(_sum)
_FUNCS = [t for _, t in TASKS]


def exchange(r):
    turns = r.choices(_FUNCS, cum_weights=_CUM)[0](r)
    if r.random() < 0.3 and not any("colour" in a or "favourite" in a for _, a in turns):
        turns = [(q.replace("colour", "color").replace("favourite", "favorite"), a) for q, a in turns]
    return turns


def render_turns(r, turns, think_last=None):
    """User and assistant turns; now and then the last answer follows the empty
    thinking block that the template writes when thinking is switched off."""
    out = []
    for i, (q, a) in enumerate(turns):
        out.append(f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n")
        if i == len(turns) - 1:
            if think_last:
                out.append(f"<think>\n{think_last}\n</think>\n\n")
            elif r.random() < 0.25:
                out.append(THINK_OFF)
        out.append(a + "<|im_end|>\n")
    return "".join(out)


def head(r):
    return turn("system", system_prompt(r)) if r.random() < 0.4 else ""


def n_exchanges(r):
    k = r.random()
    if k < 0.60:
        return 1
    if k < 0.78:
        return 2
    if k < 0.92:
        return r.randint(3, 5)
    if k < 0.985:
        return r.randint(6, 12)
    return r.randint(15, 45)


def d_chat(r):
    turns = []
    for _ in range(n_exchanges(r)):
        turns += exchange(r)
    return head(r) + render_turns(r, turns)


def d_think(r):
    turns = []
    for _ in range(r.choice((0, 0, 1, 2))):
        turns += exchange(r)
    if r.random() < 0.7:
        a, b = training_pair(r)
        q, ans, why = add_question(r, a, b), f"{a} + {b} = {a + b}", reasoning(r, a, b)
    else:
        q, ans, _ = fact(r)
        why = r.choice(("This is a simple question. I know the answer.", "The user asks: {q} I know this fact.", "Let me think. {q} I know the answer.")).format(q=q)
    if r.random() < 0.2:
        return head(r) + render_turns(r, turns + [(q + " /no_think", ans)])
    if r.random() < 0.3:
        return turn("system", system_prompt(r) + " /think") + render_turns(r, turns + [(q, ans)], why)
    return head(r) + render_turns(r, turns + [(q + " /think", ans)], why)


# --------------------------------------------------------------------------
# Memory: something is told early and asked for late
# --------------------------------------------------------------------------

ACK = ["Okay, I will remember that.", "Okay, I will remember it.", "I will remember that.", "Got it, I will remember.", "OK.", "Okay.", "Noted."]
LABELS = ["secret word"] * 20 + ["password", "code word", "magic word", "code", "secret code", "key", "token", "passphrase", "keyword", "secret", "secret name", "special word"]
TELL_WORD = ["The {l} is {w}.", "The {l} is {w}.", "My {l} is {w}.", "My {l} is {w}.", "My {l} is {w}.", "The {l} is \"{w}\".", "My {l} is '{w}'.", "The {l} is: {w}", "{L}: {w}", "Remember the {l} {w}.",
             "Remember this {l}: {w}.", "Please remember the {l}: {w}", "Our {l} is {w}.", "Remember: the {l} is {w}.", "Remember that my {l} is {w}.", "Please remember that the {l} is {w}.", "I will tell you a {l}: {w}.",
             "My {l} is {w}, do not forget it.", "{w} is the {l}.", "{w} is my {l}.", "Keep this in mind: the {l} is {w}.", "Let the {l} be {w}.", "Here is my {l}: {w}", "Here is the {l}: {w}.", "The {l} is `{w}`.", "My {l} is {w}",
             "the {l} is {w}", "my {l} is {w}.", "The {l} for today is {w}.", "The {l} is {w}!", "The {l} is **{w}**.", "I have a {l}. It is {w}.", "{l} = {w}", "Note the {l}: {w}."]
TELL_PLAIN = ["Remember the word {w}.", "Remember this word: {w}", "Please remember the word {w}.", "The word is {w}."]
PLEASE = ["", "", "", " Please remember it.", " Remember it.", " Do not forget it.", " I will ask you for it later.", " Keep it safe."]


def ask_word(r, label, w, mine):
    """A question for the word, and its answer."""
    the = r.choice(("the", "my")) if mine else "the"
    your = "Your" if the == "my" else "The"
    if label == "word":
        q = r.choice(("What is the word?", "What was the word?", "Which word did I tell you?", "What word did I ask you to remember?"))
        return q, f"The word is {w}."
    k = r.random()
    if k < 0.75:
        q = r.choice(("What is {t} {l}?", "What is {t} {l}?", "What is {t} {l}?", "What was {t} {l}?", "Do you know {t} {l}?", "What {l} did I tell you? What is {t} {l}?", "So what is {t} {l}?", "Question: what is {t} {l}?", "Now tell me {t} {l}.",
                      "What is {t} {l} that I told you at the start?", "Remind me, what is {t} {l}?", "Write {t} {l}.", "I forgot {t} {l}. What is it?", "{t} {l}?", "What is {t} {l} again?", "what is {t} {l}", "What's {t} {l}?", "Tell me {t} {l}.", "Do you remember {t} {l}?", "Now, what is {t} {l}?",
                      "Can you tell me {t} {l}?", "Please tell me {t} {l}.", "Which {l} did I tell you? What is {t} {l}?", "Repeat {t} {l}.", "Say {t} {l}.", "What did I say {t} {l} was?", "And what is {t} {l}?"))
        return q.format(t=the, l=label), f"{your} {label} is {w}."
    q = r.choice(("What is {t} {l}? Answer with the word only.", "What is {t} {l}? Reply with only the word.", "Reply with {t} {l} only.", "What is {t} {l}? Answer in one word.", "What is {t} {l}? Reply with just the word.",
                  "What is {t} {l}? Say only the word.", "Answer with {t} {l} and nothing else."))
    return q.format(t=the, l=label), w


LOREM = """lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua""".split()


def filler(r, words):
    """Text of about this many words that has nothing to do with the question."""
    k = r.random()
    if k < 0.45:
        out, n = [], 0
        while n < words:
            s = one_sentence(r)
            out.append(s)
            n += s.count(" ") + 1
        return " ".join(out)
    if k < 0.60:
        s = one_sentence(r)
        return " ".join([s] * max(1, words // (s.count(" ") + 1)))
    if k < 0.70:
        out = []
        while len(out) < words:
            out += LOREM
        return " ".join(out[:words]) + "."
    if k < 0.78:
        return " ".join(r.choice(ALL_WORDS) for _ in range(words)) + "."
    if k < 0.84:
        return " ".join(str(r.randint(0, 999)) for _ in range(words // 2 + 1)) + "."
    if k < 0.88:
        w = r.choice(ALL_WORDS + ["filler", "word", "text", "blah", "x", "hello", "padding"])
        return " ".join([w] * words)
    if k < 0.91:
        return " ".join(made_up_word(r) for _ in range(words // 2 + 1)) + "."
    return story(r, episodes=max(1, words // 45))


def filler_len(r):
    return r.choice((0, 0, 0, 0, r.randint(3, 40), r.randint(3, 40), r.randint(20, 150), r.randint(100, 500), r.randint(300, 1100)))


KEYS = ["favourite colour", "favourite animal", "favourite fruit", "name", "dog's name", "cat's name", "home town", "lucky number", "age", "job", "sister's name", "favourite number"]


def key_value(r, key):
    if "colour" in key:
        return r.choice(COLOURS)
    if "animal" in key:
        return r.choice(ANIMALS)
    if "fruit" in key:
        return r.choice(FRUITS)
    if "name" in key:
        return r.choice(NAMES)
    if "town" in key:
        return r.choice(CITIES)
    if "job" in key:
        return FIELD["job"](r)
    return str(r.randint(2, 99))


def m_secret(r):
    """[system], turns"""
    label = r.choice(LABELS)
    w = secret_word(r)
    t = r.choice(TELL_WORD).format(w=w, l=label, L=label.capitalize())
    if r.random() < 0.06:
        label, t = "word", r.choice(TELL_PLAIN).format(w=w)
    mine = True
    style = r.random()
    sys = None
    turns = []
    n = filler_len(r)
    if style < 0.50:  # one message
        f = filler(r, n) if n else ""
        pre = (r.choice(("Hello. ", "Hi! ", "Listen. ", one_sentence(r) + " ", filler(r, r.randint(5, 80)) + " ")) if r.random() < 0.25 else "")
        if t[-1] not in ".!?":
            t += r.choice((".", "\n", " -", "."))
        q, a = ask_word(r, label, w, mine)
        sep = r.choice((" ", " ", " ", "\n", "\n\n"))
        if r.random() < 0.08 and label != "word":  # the question first, the word after it
            turns.append((q + sep + t, a))
        else:
            turns.append((pre + t + r.choice(PLEASE) + (sep + f if f else "") + sep + q, a))
    elif style < 0.62:  # told by the system prompt
        sys = r.choice(("", "You are a helpful assistant. ", system_prompt(r) + " ")) + t + (" " + filler(r, n) if n and r.random() < 0.5 else "")
        for _ in range(r.choice((0, 0, 1, 2, 4))):
            turns += exchange(r)
        turns.append(ask_word(r, label, w, False))
    else:  # told in one turn, asked in a later one
        turns.append((t + r.choice(PLEASE), r.choice(ACK)))
        k = r.random()
        if k < 0.25:
            pass
        elif k < 0.75:
            for _ in range(r.choice((1, 1, 2, 3, 4, 6, 8))):
                turns += exchange(r)
        elif k < 0.90:
            for _ in range(r.randint(8, 30)):
                turns += exchange(r)
        else:
            turns.append((r.choice(("Here is some text: ", "Read this. ", "")) + filler(r, r.randint(20, 800)), r.choice(("Okay.", "Okay, I have read it."))))
        turns.append(ask_word(r, label, w, mine))
        if r.random() < 0.25:  # a new word, or the same question again
            if r.random() < 0.5:
                w2 = secret_word(r)
                turns.append((r.choice(("Now the {l} is {w}.", "The new {l} is {w}.", "I changed the {l}. It is {w} now.")).format(l=label, w=w2), r.choice(ACK)))
                turns.append(ask_word(r, label, w2, mine))
            else:
                turns += exchange(r)
                turns.append(ask_word(r, label, w, mine))
    return sys, turns


def m_table(r):
    """Several names, one word for each."""
    n = r.randint(2, 8)
    who = r.sample(NAMES, n)
    ws = [secret_word(r) for _ in range(n)]
    form = r.choice(("{n}'s word is {w}.", "{n} has the word {w}.", "The word of {n} is {w}.", "{n}: {w}", "The secret word of {n} is {w}."))
    sep = "\n" if form == "{n}: {w}" else " "
    t = sep.join(form.format(n=a, w=b) for a, b in zip(who, ws))
    n_fill = filler_len(r) // 2
    if n_fill:
        t += sep + filler(r, n_fill)
    turns = []
    i = r.randrange(n)
    q = lambda i: r.choice(("What is {n}'s word?", "Which word does {n} have?", "What is the word of {n}?")).format(n=who[i])
    turns.append((t + sep + q(i), f"{who[i]}'s word is {ws[i]}."))
    for _ in range(r.choice((0, 0, 1, 2))):
        i = r.randrange(n)
        turns.append((q(i), f"{who[i]}'s word is {ws[i]}."))
    return None, turns


def m_about_me(r):
    keys = r.sample(KEYS, r.randint(1, 4))
    vals = {k: key_value(r, k) for k in keys}
    turns = []
    if r.random() < 0.5:
        turns.append((" ".join(f"My {k} is {v}." for k, v in vals.items()), r.choice(ACK)))
    else:
        for k, v in vals.items():
            turns.append((f"My {k} is {v}.", r.choice(ACK)))
            if r.random() < 0.3:
                turns += exchange(r)
    for _ in range(r.choice((0, 1, 1, 2, 4, 10))):
        turns += exchange(r)
    for k in r.sample(keys, r.randint(1, len(keys))):
        turns.append((r.choice(("What is my {k}?", "Do you remember my {k}?", "Tell me my {k}.", "what is my {k}")).format(k=k), f"Your {k} is {vals[k]}."))
    return None, turns


def d_memory(r):
    k = r.random()
    sys, turns = m_secret(r) if k < 0.75 else m_table(r) if k < 0.88 else m_about_me(r)
    if k >= 0.75 and r.random() < 0.1:
        turns = exchange(r) + turns
    return (turn("system", sys) if sys else head(r)) + render_turns(r, turns)


def d_long_question(r):
    """An ordinary question after a long text in the same message."""
    t = filler(r, r.randint(20, 700))
    q, a = exchange(r)[0]
    return head(r) + render_turns(r, [(t + r.choice((" ", "\n\n", "\n")) + q, a)])


# --------------------------------------------------------------------------
# Tools
# --------------------------------------------------------------------------

def make_tool(r, name, desc, params):
    """params: (name, type, description, required[, enum])"""
    props = {}
    for p in params:
        d = {"type": p[1]}
        if r.random() < 0.7:
            d["description"] = p[2]
        if len(p) > 4:
            d["enum"] = p[4]
        props[p[0]] = d
    f = {"name": name}
    if r.random() < 0.9:
        f["description"] = desc
    f["parameters"] = {"type": "object", "properties": props}
    req = [p[0] for p in params if p[3]]
    if r.random() < 0.9:
        f["parameters"]["required"] = req
    return {"type": "function", "function": f}


def tool_case(r, kind=None):
    """(tool, question, arguments, result, answer)"""
    k = r.randrange(20) if kind is None else kind
    if k <= 1:
        city = r.choice(CITIES) if r.random() < 0.9 else made_up_word(r).capitalize()
        p = r.choice(("city", "location", "place", "city"))
        name = r.choice(("get_weather", "get_weather", "get_current_weather", "weather", "fetch_weather", "weather_lookup"))
        params = [(p, "string", r.choice(("The name of the city", "City name", "The city", "The city to look up")), True)]
        args = {p: city}
        q = r.choice(("What is the weather in {c}?", "What's the weather like in {c}?", "How is the weather in {c}?", "weather in {c}", "Tell me the weather in {c}.", "Is it raining in {c}?", "How warm is it in {c}?",
                      "What is the weather in {c} today?", "Check the weather in {c}, please.", "What's the weather in {c} right now?")).format(c=city)
        if r.random() < 0.3:
            params.append(("unit", "string", "Temperature unit", False, ["celsius", "fahrenheit"]))
            if r.random() < 0.6:
                u = r.choice(("celsius", "fahrenheit"))
                q = q.rstrip("?.") + f" in {u}?"
                args["unit"] = u
        temp, cond = r.randint(-10, 40), r.choice(("sunny", "cloudy", "rainy", "windy", "foggy", "snowy", "clear"))
        tk, ck = r.choice((("temperature", "condition"), ("temp", "weather"), ("temperature", "conditions"), ("temperature", "description")))
        res = {tk: temp, ck: cond}
        if r.random() < 0.4:
            res = {p: city, **res}
        return make_tool(r, name, r.choice(("Get the weather for a city", "Get the current weather", "Returns the weather in a place")), params), q, args, res, f"It is {cond} in {city} and the temperature is {temp} degrees."
    if k == 2:
        a, b = training_pair(r)
        x, y = r.choice((("a", "b"), ("x", "y"), ("first", "second"), ("num1", "num2")))
        name = r.choice(("add", "add_numbers", "sum", "calculator_add", "plus"))
        ty = r.choice(("integer", "number"))
        res = r.choice(({"result": a + b}, {"sum": a + b}, a + b))
        return make_tool(r, name, "Add two numbers", [(x, ty, "The first number", True), (y, ty, "The second number", True)]), add_question(r, a, b), {x: a, y: b}, res, f"{a} + {b} = {a + b}"
    if k == 3:
        city = r.choice(CITIES)
        p = r.choice(("city", "location", "timezone"))
        t = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
        return (make_tool(r, r.choice(("get_time", "get_current_time", "current_time", "clock")), "Get the current time in a city", [(p, "string", "The city", True)]),
                r.choice(("What time is it in {c}?", "Tell me the time in {c}.", "current time in {c}", "What is the time in {c}?")).format(c=city), {p: city}, r.choice(({"time": t}, {p: city, "time": t}, t)), f"It is {t} in {city}.")
    if k == 4:
        w = " ".join(r.choice(ALL_WORDS) for _ in range(r.randint(1, 3)))
        p = r.choice(("query", "q", "text"))
        n = r.randint(0, 99)
        return (make_tool(r, r.choice(("search", "web_search", "search_web", "find")), "Search the web", [(p, "string", "What to search for", True)]),
                r.choice(("Search for {w}.", "Search the web for {w}.", "Look up {w}.", "Find {w} on the web.")).format(w=w), {p: w}, r.choice(({"results": n}, {"count": n})), f"The search for {w} found {n} results.")
    if k == 5:
        n = r.randint(1, 90)
        p = r.choice(("minutes", "duration"))
        return (make_tool(r, r.choice(("set_timer", "start_timer", "set_alarm")), "Set a timer", [(p, "integer", "Minutes", True)]),
                r.choice(("Set a timer for {n} minutes.", "Wake me in {n} minutes.", "Start a timer of {n} minutes.", "timer {n} minutes")).format(n=n), {p: n}, {"status": "ok"}, f"The timer is set for {n} minutes.")
    if k == 6:
        n, s = r.choice(NAMES), one_sentence(r)
        p1, p2 = r.choice((("to", "text"), ("recipient", "body"), ("name", "message"), ("to", "message")))
        return (make_tool(r, r.choice(("send_message", "send_email", "send_text", "message")), "Send a message to someone", [(p1, "string", "Who gets it", True), (p2, "string", "The text", True)]),
                r.choice(("Send {n} the message: {s}", "Tell {n}: {s}", "Write to {n}: {s}")).format(n=n, s=s), {p1: n, p2: s}, r.choice(({"status": "sent"}, {"ok": True}, {"sent": True})), f"I sent the message to {n}.")
    if k == 7:
        s = "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.randint(3, 4)))
        p = r.choice(("symbol", "ticker"))
        v = r.randint(1, 999)
        return (make_tool(r, r.choice(("get_stock_price", "stock_price", "get_price")), "Get the price of a stock", [(p, "string", "The stock symbol", True)]),
                r.choice(("What is the stock price of {s}?", "How much is {s} stock?", "Price of {s}?")).format(s=s), {p: s}, {"price": v}, f"The price of {s} is {v}.")
    if k == 8:
        a, b = operand(r), operand(r)
        e = f"{a} {r.choice('*/-')} {b}"
        v = r.randint(1, 99999)
        return (make_tool(r, r.choice(("calculate", "calculator", "evaluate", "eval_math")), "Evaluate an expression", [("expression", "string", "The expression", True)]),
                r.choice(("Calculate {e}.", "What is {e}?", "Use the calculator: {e}")).format(e=e), {"expression": e}, {"result": v}, f"The result of {e} is {v}.")
    if k == 9:
        i, n = r.randint(1, 9999), r.choice(NAMES)
        p = r.choice(("id", "user_id"))
        return (make_tool(r, r.choice(("get_user", "find_user", "lookup_user", "user_info")), "Look up a user", [(p, "integer", "The user id", True)]),
                r.choice(("Who is user {i}?", "Look up user {i}.", "What is the name of user {i}?")).format(i=i), {p: i}, {"name": n}, f"User {i} is {n}.")
    if k == 10:
        lang = r.choice(list(TRANSLATE))
        w = r.choice(list(TRANSLATE[lang]))
        return (make_tool(r, r.choice(("translate", "translate_text")), "Translate text", [("text", "string", "The text", True), ("language", "string", "The language", True)]),
                f"Translate {w} to {lang}.", {"text": w, "language": lang}, {"translation": TRANSLATE[lang][w]}, f"{w.capitalize()} in {lang} is {TRANSLATE[lang][w]}.")
    if k == 11:
        room, on = r.choice(("kitchen", "bedroom", "garden", "hall", "bathroom")), r.random() < 0.5
        s = "on" if on else "off"
        p = r.choice(("state", "on"))
        return (make_tool(r, r.choice(("set_light", "switch_light", "light")), "Switch a light", [("room", "string", "The room", True), (p, "string" if p == "state" else "boolean", "On or off", True)]),
                r.choice(("Turn {s} the light in the {r}.", "Switch the {r} light {s}.")).format(s=s, r=room), {"room": room, p: s if p == "state" else on}, {"status": "ok"}, f"The light in the {room} is {s}.")
    if k == 13:
        a, b = r.randint(0, 999), r.randint(1, 999)
        x, y = r.choice((("a", "b"), ("x", "y"), ("first", "second"), ("num1", "num2"), ("left", "right")))
        verb, name, text = r.choice((("Multiply", "multiply", "{a} times {b}"), ("Multiply", "multiply_numbers", "{a} * {b}"), ("Divide", "divide", "{a} divided by {b}"), ("Subtract", "subtract", "{a} minus {b}")))
        v = r.randint(0, 99999)
        ask = f"Subtract {b} from {a}." if verb == "Subtract" else f"{verb} {a} {'by' if verb == 'Divide' else r.choice(('by', 'and', 'with'))} {b}."
        q = r.choice((ask, ask, "What is " + text.format(a=a, b=b) + "?", "Use the tool: " + text.format(a=a, b=b)))
        return make_tool(r, name, verb + " two numbers", [(x, "integer", "The first number", True), (y, "integer", "The second number", True)]), q, {x: a, y: b}, r.choice(({"result": v}, v)), f"The result is {v}."
    if k == 14:
        a, b = r.sample(CITIES, 2)
        x, y = r.choice((("from", "to"), ("origin", "destination"), ("from_city", "to_city")))
        n = r.randint(1, 999)
        return (make_tool(r, r.choice(("book_flight", "find_flight", "search_flights", "book_train")), "Find a trip between two cities", [(x, "string", "Where it starts", True), (y, "string", "Where it ends", True)]),
                r.choice(("Book a flight from {a} to {b}.", "I want to fly from {a} to {b}.", "Find me a flight from {a} to {b}.", "I need a trip from {a} to {b}.")).format(a=a, b=b), {x: a, y: b}, {"number": n}, f"I found trip {n} from {a} to {b}.")
    if k == 15:
        t, d = f"{r.choice(ADJECTIVES)} {r.choice(NOUNS)}", r.choice(DAYS)
        x, y = r.choice((("title", "day"), ("name", "date"), ("event", "day")))
        return (make_tool(r, r.choice(("create_event", "add_event", "add_to_calendar", "schedule_meeting")), "Add an event to the calendar", [(x, "string", "The title", True), (y, "string", "The day", True)]),
                r.choice(("Add {t} to my calendar on {d}.", "Create an event called {t} on {d}.", "Put {t} in my calendar for {d}.")).format(t=t, d=d), {x: t, y: d}, {"status": "ok"}, f"I added {t} on {d}.")
    if k == 16:
        n, a, b = r.randint(1, 9999), *r.sample(("USD", "EUR", "GBP", "JPY", "CHF"), 2)
        v = r.randint(1, 99999)
        return (make_tool(r, r.choice(("convert_currency", "convert", "exchange")), "Convert money", [("amount", "number", "How much", True), ("from", "string", "From", True), ("to", "string", "To", True)]),
                r.choice(("Convert {n} {a} to {b}.", "How much is {n} {a} in {b}?", "{n} {a} in {b}")).format(n=n, a=a, b=b), {"amount": n, "from": a, "to": b}, {"result": v}, f"{n} {a} are {v} {b}.")
    if k == 17:
        t = r.choice((r.choice(NOUNS), r.choice(ANIMALS), " ".join(r.sample(ALL_WORDS, 2))))
        p = r.choice(("song", "title", "name"))
        return (make_tool(r, r.choice(("play_music", "play_song", "play")), "Play music", [(p, "string", "What to play", True)]),
                r.choice(("Play {t}.", "Play the song {t}.", "I want to hear {t}.", "Please play {t}.")).format(t=t), {p: t}, {"status": "playing"}, f"Now playing {t}.")
    if k == 18:
        c = r.choice(list(CAPITALS))
        p = r.choice(("country", "name"))
        v = r.randint(1, 999)
        return (make_tool(r, r.choice(("get_population", "population", "country_info")), "Get the population of a country", [(p, "string", "The country", True)]),
                r.choice(("What is the population of {c}?", "How many people live in {c}?", "Get the population of {c}.")).format(c=c), {p: c}, r.choice(({"population": v}, v)), f"The population of {c} is {v}.")
    word = lambda: r.choice(ALL_WORDS) if r.random() < 0.6 else "".join(c for c in made_up_word(r) if c.isalpha())
    name = "_".join([r.choice(VERBS + ["get", "set", "make", "do"])] + [word() for _ in range(r.randint(1, 2))])
    n = r.randint(1, 3)
    ps = []
    while len(ps) < n:
        p = word()
        if p not in ps:
            ps.append(p)
    types = [r.choice(("string", "string", "integer")) for _ in ps]
    args = {p: (secret_word(r) if t == "string" else r.randint(0, 999)) for p, t in zip(ps, types)}
    how = r.random()
    if how < 0.5:
        q = r.choice(("Call {f} with {x}.", "Use {f} with {x}.", "Use the tool {f} with {x}.", "Call the function {f} with {x}.", "Please run {f} with {x}.")).format(
            f=name, x=join_and([f"{p} {v}" if how < 0.25 else f"{p} = {v}" for p, v in args.items()]))
    else:
        q = r.choice(("Call {f}: {x}.", "Run {f}: {x}.", "{f}: {x}")).format(f=name, x=join_and([f"{p} set to {v}" for p, v in args.items()]))
    v = r.randint(0, 999)
    return (make_tool(r, name, r.choice(("A tool", "Does something", one_sentence(r))), [(p, t, f"The {p}", True) for p, t in zip(ps, types)]), q, args, r.choice(({"result": v}, v)), f"The result is {v}.")


def tool_kinds(r, n):
    """n different kinds for tool_case (0 and 1 are both the weather, 12 and 19 are made-up tools)."""
    return r.sample((r.randrange(2), 2, 3, 4, 5, 6, 7, r.choice((8, 8, 13)), 9, 10, 11, 12, 14, 15, 16, 17, 18, 19), n)


def call_text(name, args):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": args}, ensure_ascii=False) + "\n</tool_call>"


def d_tools(r):
    kinds = tool_kinds(r, r.choice((1, 1, 1, 2, 2, 3, 4)))
    tool, q, args, res, ans = tool_case(r, kinds[0])
    name = tool["function"]["name"]
    tools = [tool] + [tool_case(r, k)[0] for k in kinds[1:]]
    r.shuffle(tools)
    style = r.random()
    dump = None
    if style < 0.10:
        dump = lambda t: json.dumps(t, ensure_ascii=False, sort_keys=True)
    elif style < 0.18:
        dump = lambda t: json.dumps(t, ensure_ascii=False, separators=(",", ":"))
    out = [tools_prompt(tools, system_prompt(r) if r.random() < 0.5 else None, dump)]
    before = r.choice((0, 0, 0, 0, 1, 2))
    names = {x["function"]["name"] for x in tools}
    safe = [t_fact, t_talk, t_story, t_list, t_sort, t_repeat, t_fact, t_talk]
    if not any(k in (2, 8, 13) for k in kinds):  # no calculator among the tools
        safe += [t_add, t_add, t_add, t_sub, t_word_problem]
    for _ in range(before):
        out.append(render_turns(r, r.choice(safe)(r)).replace(THINK_OFF, ""))
    think = THINK_OFF if r.random() < 0.25 else ""
    if r.random() < 0.16:  # tools are there, but no use for them
        out.append(render_turns(r, r.choice(safe)(r)))
        return "".join(out)

    def result_text(x):
        return x if isinstance(x, str) else json.dumps(x, ensure_ascii=False, separators=r.choice((None, (",", ":"))))

    calls, results, answers = [(name, args)], [res], [ans]
    if "weather" in name and r.random() < 0.25:
        # two cities, two calls
        p = next(k for k in args if k != "unit")
        c2 = r.choice([c for c in CITIES if c != args[p]])
        temp, cond = r.randint(-10, 40), r.choice(("sunny", "cloudy", "rainy"))
        q = r.choice(("What is the weather in {a} and in {b}?", "What is the weather in {a} and {b}?", "Compare the weather in {a} and {b}.", "Weather in {a} and {b}?")).format(a=args[p], b=c2)
        args.pop("unit", None)
        calls.append((name, {p: c2}))
        results.append({"temperature": temp, "condition": cond})
        answers.append(f"It is {cond} in {c2} and the temperature is {temp} degrees.")
    out.append(turn("user", q))
    finish = r.random() < 0.65
    body = "\n".join(call_text(*c) for c in calls)
    out.append(f"<|im_start|>assistant\n{'' if finish else think}{body}<|im_end|>\n")
    if finish:
        out.append("<|im_start|>user" + "".join(f"\n<tool_response>\n{result_text(x)}\n</tool_response>" for x in results) + "<|im_end|>\n")
        more = r.random() < 0.2
        out.append(f"<|im_start|>assistant\n{'' if more else think}{' '.join(answers)}<|im_end|>\n")
        if more:
            out.append(render_turns(r, r.choice(safe)(r)))
    return "".join(out)


# --------------------------------------------------------------------------
# Plain text
# --------------------------------------------------------------------------

def d_plain(r):
    k = r.random()
    if k < 0.55:
        return story(r, episodes=r.choice((1, 1, 1, 2, 3, 5)))
    if k < 0.75:
        return " ".join(dict.fromkeys(fact(r)[2] for _ in range(r.choice((1, 1, 2, 3, 4, 8)))))
    if k < 0.92:
        out = []
        for _ in range(r.choice((1, 2, 3, 5, 8, 12))):
            if r.random() < 0.75:
                a, b = training_pair(r)
                out.append(f"{a} + {b} = {a + b}")
            else:
                a, b = operand(r), operand(r)
                out.append(f"{max(a, b)} - {min(a, b)} = {abs(a - b)}")
        return "\n".join(out)
    if k < 0.96:
        return filler(r, r.randint(10, 200))
    if k < 0.98:
        return introduction(r)
    if k < 0.985:
        return r.choice(("The quick brown fox jumps over the lazy dog.", "The future of AI is bright, and some of it is small.", "The president of the United States is elected every four years.", "Quire is a program that serves language models.", "Roses are red, violets are blue, sugar is sweet and so are you."))
    if k < 0.99:
        return " ".join(about(r)[1] for _ in range(r.randint(1, 4)))
    q, a, _ = fact(r)
    return f"Question: {q}\nAnswer: {a}"


DOCUMENTS = [(74, d_chat), (11, d_memory), (2, d_think), (7, d_tools), (5, d_plain), (1.5, d_long_question)]
_DCUM, _sum = [], 0.0
for _w, _t in DOCUMENTS:
    _sum += _w
    _DCUM.append(_sum)
_DFUNCS = [t for _, t in DOCUMENTS]


def document(r):
    """One training document, without the end-of-text token."""
    return r.choices(_DFUNCS, cum_weights=_DCUM)[0](r)


def documents(seed, count):
    r = random.Random(seed)
    return [document(r) for _ in range(count)]


# --------------------------------------------------------------------------

def check_template(path):
    """The chat template must write what this file writes."""
    import jinja2
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x, **k: json.dumps(x, ensure_ascii=False)
    t = env.from_string(open(path, encoding="utf-8").read())
    tool = make_tool(random.Random(0), "get_weather", "Get the weather", [("city", "string", "The city", True)])
    u, a = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}
    s = {"role": "system", "content": "Be kind."}
    tu, ta = turn("user", "Hi"), turn("assistant", "Hello!")
    gen = "<|im_start|>assistant\n"
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]}
    call2 = {"role": "assistant", "content": "", "tool_calls": [call["tool_calls"][0], {"function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}]}
    resp = {"role": "tool", "content": '{"temperature": 3}'}
    paris, rome = call_text("get_weather", {"city": "Paris"}), call_text("get_weather", {"city": "Rome"})
    tr = "\n<tool_response>\n{\"temperature\": 3}\n</tool_response>"
    cases = [
        (dict(messages=[u], add_generation_prompt=True), tu + gen),
        (dict(messages=[u], add_generation_prompt=True, enable_thinking=True), tu + gen),
        (dict(messages=[u], add_generation_prompt=True, enable_thinking=False), tu + gen + THINK_OFF),
        (dict(messages=[s, u, a, u], add_generation_prompt=True), turn("system", "Be kind.") + tu + ta + tu + gen),
        (dict(messages=[u, a]), tu + turn("assistant", THINK_OFF + "Hello!")),
        (dict(messages=[u, a, u]), tu + ta + tu),
        (dict(messages=[u, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello!"}, u]), tu + ta + tu),
        (dict(messages=[u, {"role": "assistant", "content": "Hello!", "reasoning_content": "Hm."}]), tu + turn("assistant", "<think>\nHm.\n</think>\n\nHello!")),
        (dict(messages=[u, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello!"}]), tu + turn("assistant", "<think>\nHm.\n</think>\n\nHello!")),
        (dict(messages=[{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]), tu),
        (dict(messages=[u], tools=[tool], add_generation_prompt=True), tools_prompt([tool]) + tu + gen),
        (dict(messages=[s, u], tools=[tool, tool], add_generation_prompt=True), tools_prompt([tool, tool], "Be kind.") + tu + gen),
        (dict(messages=[u, call, resp], tools=[tool], add_generation_prompt=True),
         tools_prompt([tool]) + tu + turn("assistant", paris) + "<|im_start|>user" + tr + "<|im_end|>\n" + gen),
        (dict(messages=[u, call2, resp, resp], tools=[tool], add_generation_prompt=True),
         tools_prompt([tool]) + tu + turn("assistant", paris + "\n" + rome) + "<|im_start|>user" + tr + tr + "<|im_end|>\n" + gen),
        (dict(messages=[u, dict(call, content="One moment."), resp]), tu + turn("assistant", "One moment.\n" + paris) + "<|im_start|>user" + tr + "<|im_end|>\n"),
        (dict(messages=[u, dict(call, content=None), resp, a, u], add_generation_prompt=True),
         tu + turn("assistant", paris) + "<|im_start|>user" + tr + "<|im_end|>\n" + ta + tu + gen),
    ]
    bad = 0
    for kw, want in cases:
        got = t.render(**kw)
        if got != want:
            bad += 1
            print("MISMATCH", kw, "\n  got ", repr(got), "\n  want", repr(want))
    print(f"chat template: {len(cases) - bad}/{len(cases)} cases agree")
    return bad == 0


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--count", type=int, default=10)
    ap.add_argument("--stats", action="store_true", help="print sizes instead of documents")
    ap.add_argument("--check-template", metavar="PATH", nargs="?", const="models/quire-demo/chat_template.jinja")
    args = ap.parse_args()
    if args.check_template:
        raise SystemExit(0 if check_template(args.check_template) else 1)
    if args.stats:
        import time
        r = random.Random(args.seed)
        for w, f in DOCUMENTS:
            t0 = time.time()
            n = [len(f(r)) for _ in range(300)]
            dt = time.time() - t0
            print(f"{f.__name__:16s} weight {w:5} mean {sum(n) / len(n):8.1f} max {max(n):6d} chars, {sum(n) / dt / 1e6:.2f} MB/s")
        return
    for d in documents(args.seed, args.count):
        print(d)
        print("-" * 40)


if __name__ == "__main__":
    main()
