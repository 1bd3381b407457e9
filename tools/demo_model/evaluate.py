#!/usr/bin/env python3
"""Score the Quire demo model: a saved checkpoint, or a server that serves it.

    python3 evaluate.py --model models/quire-demo --dtype bfloat16
    python3 evaluate.py --base-url http://127.0.0.1:8000/v1 --concurrency 16

The questions are the same for the same --seed and --count.  Additions come from
the operand pairs that generate.py keeps out of the training text.  For each
task a line `TASK accuracy: 0.9xx (n/N)` is printed; the exit status is 1 when a
task named by --judge is below --min-accuracy.

The server mode needs only the standard library and the `openai` package; the
checkpoint mode needs torch and transformers.
"""

import argparse
import json
import os
import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import generate as g  # noqa: E402


# --------------------------------------------------------------------------
# Tasks: each item is (messages, tools, judge(text) -> bool, the wanted text)
# --------------------------------------------------------------------------

def last_number(text):
    found = re.findall(r"-?\d+", text.replace(",", ""))
    return int(found[-1]) if found else None


def held_out_pair(r):
    """Two- and three-digit operands, held out of the training text."""
    while True:
        a, b = (r.randint(*r.choice(((10, 99), (100, 999), (100, 999)))) for _ in range(2))
        if g.is_held_out(a, b):
            return a, b


def user(text):
    return [{"role": "user", "content": text}]


def number_item(messages, want, shown):
    return messages, None, (lambda t: last_number(t) == want), shown


def additions(r):
    a, b = held_out_pair(r)
    return number_item(user(r.choice(g.ADD).format(a=a, b=b)), a + b, f"{a} + {b} = {a + b}")


def new_phrasings(r):
    a, b = held_out_pair(r)
    return number_item(user(r.choice(g.ADD_HELD_OUT).format(a=a, b=b)), a + b, f"{a} + {b} = {a + b}")


def word_problems(r):
    a, b = held_out_pair(r)
    n, m = r.sample(g.NAMES, 2)
    f = dict(n=n, m=m, t=g.plural(r.choice(g.THINGS)), a=a, b=b)
    return number_item(user(r.choice(g.ADD_STORIES)[0].format(**f)), a + b, f"{a} + {b} = {a + b}")


def follow_ups(r):
    a, b = held_out_pair(r)
    c = r.randint(1, 20)
    q = r.choice(("Now add {c} to that.", "Add {c} to the result.", "And plus {c}?")).format(c=c)
    msgs = user(f"What is {a} + {b}?") + [{"role": "assistant", "content": f"{a} + {b} = {a + b}"}] + user(q)
    return number_item(msgs, a + b + c, f"{a + b} + {c} = {a + b + c}")


def subtractions(r):
    a, b = r.randint(10, 999), r.randint(10, 999)
    a, b = max(a, b), min(a, b)
    return number_item(user(r.choice(g.SUB).format(a=a, b=b)), a - b, f"{a} - {b} = {a - b}")


def word_item(messages, w):
    return messages, None, (lambda t: w in re.split(r"[\s.,!?\"'`]+", t)), w


def evaluation_word(r):
    """Mostly words that do not exist, and some that the training text never uses."""
    if r.random() < 0.7:
        return g.made_up_word(r)
    return r.choice(UNSEEN_WORDS + g.ALL_WORDS[:60])


UNSEEN_WORDS = """kumquat rhubarb zorblat7 quixotic platypus xylophone marzipan turmeric obsidian walrus gadget wombat fjord
zucchini bamboo licorice pistachio chinchilla flamenco gazebo hibiscus iguana juniper kaleidoscope lavender macaroni
nutmeg ocelot paprika quokka rutabaga saxophone tapioca ukulele vanilla wasabi yodel zeppelin""".split()


def secret_words(r):
    w = evaluation_word(r)
    k = r.randrange(4)
    if k == 0:
        return word_item(user(f"My secret word is {w}. What is my secret word?"), w)
    if k == 1:
        return word_item(user(f"The secret word is {w}. Please remember it. What is the secret word?"), w)
    if k == 2:
        return word_item([{"role": "system", "content": f"You are a helpful assistant. The secret word is {w}."}] + user("What is the secret word?"), w)
    return word_item(user(f"My secret word is {w}.") + [{"role": "assistant", "content": "Okay, I will remember that."}] + user("What is my secret word?"), w)


def secret_words_far(r):
    """The word is told about 1,000 to 1,800 tokens before it is asked for."""
    w = evaluation_word(r)
    n = r.randint(850, 1450)
    out, count = [], 0
    while count < n:
        s = g.one_sentence(r)
        out.append(s)
        count += s.count(" ") + 1
    text = " ".join(out)
    if r.random() < 0.5:
        return word_item(user(f"My secret word is {w}. {text} What is my secret word?"), w)
    return word_item(user(f"My secret word is {w}.") + [{"role": "assistant", "content": "Okay, I will remember that."}] + user(text) +
                     [{"role": "assistant", "content": "Okay."}] + user("What is my secret word?"), w)


def facts(r):
    q, a, _ = g.fact(r)
    return user(q), None, (lambda t: t.strip() == a), a


def json_objects(r):
    fields = r.sample(list(g.FIELD), r.randint(1, 4))

    def judge(t):
        try:
            return set(json.loads(t)) == set(fields)
        except (ValueError, TypeError):
            return False

    return user(f"Give me a JSON object with {g.join_and(fields)}."), None, judge, "an object with " + ", ".join(fields)


def tool_calls(r):
    first, second = g.tool_kinds(r, 2)
    tool, q, args, _, _ = g.tool_case(r, first)
    tools = [tool] + ([g.tool_case(r, second)[0]] if r.random() < 0.5 else [])
    r.shuffle(tools)
    want = {"name": tool["function"]["name"], "arguments": args}

    def judge(t):
        m = re.fullmatch(r"\s*<tool_call>\s*(\{.*\})\s*</tool_call>\s*", t, re.S)
        try:
            return bool(m) and json.loads(m.group(1)) == want
        except ValueError:
            return False

    return user(q), tools, judge, json.dumps(want)


TASKS = {f.__name__: f for f in (additions, new_phrasings, word_problems, follow_ups, subtractions, secret_words, secret_words_far, facts, json_objects, tool_calls)}
HALF = {"secret_words_far": 5, "facts": 2, "json_objects": 2, "tool_calls": 2, "follow_ups": 2, "subtractions": 2, "word_problems": 2, "new_phrasings": 2, "secret_words": 2}


def items_of(task, seed, count):
    r = random.Random(f"{task}-{seed}")
    return [TASKS[task](r) for _ in range(max(1, count // HALF.get(task, 1)))]


# --------------------------------------------------------------------------
# The two ways to get an answer
# --------------------------------------------------------------------------

def ask_server(args):
    from openai import OpenAI
    client = OpenAI(base_url=args.base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"), timeout=args.timeout)
    model = args.served_model or client.models.list().data[0].id

    def one(item):
        kw = {"tools": item[1]} if item[1] else {}
        m = client.chat.completions.create(model=model, messages=item[0], temperature=0, max_tokens=args.max_tokens, **kw).choices[0].message
        text = m.content or ""
        calls = [g.call_text(c.function.name, json.loads(c.function.arguments)) for c in m.tool_calls or []]
        return "\n".join(([text] if text.strip() else []) + calls)

    def ask(items):
        with ThreadPoolExecutor(args.concurrency) as pool:
            return list(pool.map(one, items))

    return ask


def ask_checkpoint(args):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    dev = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    tok = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).to(dev).eval()
    extra = {"enable_thinking": False} if args.no_thinking else {}

    def ask(items):
        texts = [tok.apply_chat_template(m, tools=t, tokenize=False, add_generation_prompt=True, **extra) for m, t, _, _ in items]
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        out = [None] * len(texts)
        for s in range(0, len(order), args.batch):
            part = order[s:s + args.batch]
            x = tok([texts[i] for i in part], return_tensors="pt", padding=True, add_special_tokens=False).to(dev)
            with torch.inference_mode():
                y = model.generate(input_ids=x["input_ids"], attention_mask=x["attention_mask"], do_sample=False, max_new_tokens=args.max_tokens)
            for i, row in zip(part, y[:, x["input_ids"].shape[1]:].tolist()):
                ends = [row.index(e) for e in model.generation_config.eos_token_id if e in row]
                out[i] = tok.decode(row[:min(ends)] if ends else row)
        return out

    return ask


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--model", help="folder of a checkpoint")
    ap.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="arithmetic of the checkpoint mode")
    ap.add_argument("--device")
    ap.add_argument("--batch", type=int, default=250)
    ap.add_argument("--no-thinking", action="store_true", help="checkpoint mode: enable_thinking=False")
    ap.add_argument("--base-url", help="an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1")
    ap.add_argument("--served-model", help="its model name (default: the first that it lists)")
    ap.add_argument("--concurrency", type=int, default=16)
    ap.add_argument("--timeout", type=float, default=120)
    ap.add_argument("--tasks", default="", help="comma-separated, of " + ",".join(TASKS) + "; default: all for a checkpoint, additions and secret words for a server")
    ap.add_argument("--count", type=int, default=1000, help="additions asked; other tasks ask a half or a fifth of it")
    ap.add_argument("--seed", type=int, default=2026)
    ap.add_argument("--max-tokens", type=int, default=80)
    ap.add_argument("--min-accuracy", type=float, default=None)
    ap.add_argument("--judge", default="additions,secret_words", help="tasks that --min-accuracy applies to")
    ap.add_argument("--show", type=int, default=5, help="wrong answers to print per task")
    args = ap.parse_args()
    if bool(args.model) == bool(args.base_url):
        ap.error("give --model or --base-url")
    tasks = args.tasks.split(",") if args.tasks else list(TASKS) if args.model else ["additions", "secret_words"]
    ask = ask_checkpoint(args) if args.model else ask_server(args)
    failed = False
    for task in tasks:
        items = items_of(task, args.seed, args.count)
        t0 = time.time()
        answers = ask(items)
        ok = [bool(item[2](a)) for item, a in zip(items, answers)]
        acc = sum(ok) / len(ok)
        print(f"{task} accuracy: {acc:.3f} ({sum(ok)}/{len(ok)})  [{time.time() - t0:.1f} s]", flush=True)
        for item, a in [(i, a) for i, a, o in zip(items, answers, ok) if not o][:args.show]:
            print(f"   asked {item[0][-1]['content'][-120:]!r}\n   wanted {item[3]!r}\n   got    {a!r}")
        if args.min_accuracy is not None and task in args.judge.split(",") and acc < args.min_accuracy:
            print(f"   below --min-accuracy {args.min_accuracy}")
            failed = True
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
