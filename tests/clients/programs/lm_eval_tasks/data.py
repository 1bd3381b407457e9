"""What the demo model is asked: additions of two numbers of up to three digits."""
import random

import datasets


def documents(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        a, b = draw.randrange(10, 500), draw.randrange(10, 500)
        right = f"{a} + {b} = {a + b}"
        wrong = [f"{a} + {b} = {a + b + away}" for away in (-10, 1, 100)]
        place = draw.randrange(4)
        yield {"question": f"What is {a} + {b}?", "answer": str(a + b), "choices": [*wrong[:place], right, *wrong[place:]],
               "label": place}


def additions(**_):
    return {"test": datasets.Dataset.from_list(list(documents(seed=1, count=20)))}
