"""The conversations that chat templates are rendered with, and probes of single constructs.

Cases whose "template" is not a name in TEMPLATES are small templates that probe one construct each.
"""

from text_chat_templates import TEMPLATES as STYLES
from text_family_templates import FAMILY_TEMPLATES

TEMPLATES = {**STYLES, **FAMILY_TEMPLATES}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather <now> & \"later\" — für einen Ort",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. 東京 or 'Paris'"},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "units": {"type": "string", "enum": ["°C", "°F"]},
                "where": {"type": "array", "items": {"type": "object", "properties": {
                    "lat": {"type": "number"}, "lon": {"type": ["number", "null"]}}}},
            },
            "required": ["city"],
        },
    },
}
EMPTY_TOOL = {"type": "function", "function": {"name": "ping", "description": "", "parameters": {
    "type": "object", "properties": {}}}}

# What Gemma's and OpenAI's templates look at.
NULLABLE = {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {
    "type": "object", "properties": {
        "b": {"type": ["string", "null"], "description": "either"}, "A": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "list": {"type": "array", "items": {"type": ["integer", "null"], "minimum": 0}},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"}, "deep": {"type": "boolean", "default": False}},
    "required": ["b", "mode"]}}}
FAMILY_TALKS = ("one", "system", "multi", "thinking", "tool", "two_tools", "wrong_order", "odd_role", "parts")
PART_TALK = [{"role": "system", "content": [{"type": "text", "text": "Sys."}]},
             {"role": "user", "content": [{"type": "text", "text": "b "}, {"type": "text", "text": "a"}]}]

CALL = {"id": "abcdefg12", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "opts": {"a": [1, 2.5, None]}}}}

TALKS = {
    "one": [{"role": "user", "content": "Hello"}],
    "system": [{"role": "system", "content": "  Be brief. "}, {"role": "user", "content": "Hi 😀"}],
    "multi": [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "First\nline"},
        {"role": "assistant", "content": "Answer <b>one</b> & 'two'"},
        {"role": "user", "content": "And 你好?"},
    ],
    "ends_assistant": [
        {"role": "user", "content": "Say it"},
        {"role": "assistant", "content": "It is  "},
    ],
    "thinking": [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nBecause."},
        {"role": "user", "content": "Really?"},
        {"role": "assistant", "reasoning_content": "let me see\n", "content": "Yes."},
    ],
    "reasoning_alias": [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "reasoning": "an older name", "content": "So."},
    ],
    "tool": [
        {"role": "user", "content": "Weather in Zürich?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "abcdefg12", "name": "get_weather",
         "content": '{"temp": 21.5, "sky": "clear ☀"}'},
        {"role": "assistant", "content": "21.5 degrees."},
        {"role": "user", "content": "Thanks"},
    ],
    "two_tools": [
        {"role": "user", "content": "Both"},
        {"role": "assistant", "content": "", "tool_calls": [CALL, dict(CALL, id="zyxwvut98")]},
        {"role": "tool", "tool_call_id": "abcdefg12", "content": "1"},
        {"role": "tool", "tool_call_id": "zyxwvut98", "content": "2"},
    ],
    "wrong_order": [
        {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
    ],
    "odd_role": [{"role": "user", "content": "a"}, {"role": "critic", "content": "b"}],
    "blank": [{"role": "user", "content": ""}],
}

# One construct each. `x` is the first message's content unless kwargs bring other names.
VALUES = {
    "n": 7, "f": 2.5, "big": 1e16, "small": 0.00001, "third": 0.1, "whole": 3.0, "neg": -7,
    "yes": True, "no": False, "nil": None, "s": "Hello World", "u": "Größe 東京 😀",
    "sp": "  padded\t\n", "q": "it's \"q\" \\ \n \x01 é", "l": [3, 1, 2], "e": [], "d0": {},
    "d": {"b": 1, "a": [1, {"z": None}], "items": "key", "c": "x"}, "t": ["a", "b", "a"],
    "rows": [{"k": "x", "v": 1}, {"k": "y", "v": None}, {"v": 3, "k": "x"}],
    "nested": {"l": [{"m": "1"}], "s": "é\u2028"}, "lines": "a\nb\r\nc\n\nd",
}
# Separated by broken bars, which no template uses.
EXPRESSIONS = r"""
n ¦ f ¦ big ¦ small ¦ third ¦ whole ¦ neg ¦ yes ¦ no ¦ nil ¦ s ¦ u ¦ l ¦ e ¦ d0 ¦ d ¦ t ¦ rows
nested ¦ missing ¦ q ¦ [q] ¦ [s, n, f, yes, nil] ¦ {'a': 1, 'b': [2]}
[1.0, 1e100, 1e-7, 123456789.123] ¦ (1, 2)|list ¦ [missing] ¦ n + 1 ¦ n - 10 ¦ n * 3 ¦ n / 2 ¦ n // 2
n % 3 ¦ neg % 3 ¦ neg // 2 ¦ n ** 2 ¦ 2 ** 10 ¦ -n ¦ f * 2 ¦ n + f ¦ yes + 1 ¦ n % neg
'a' + 'b' ¦ 'ab' * 3 ¦ 3 * 'ab' ¦ 'a' ~ 1 ~ none ¦ 'a' ~ [1] ¦ l + [4] ¦ [0] * 3 ¦ 'a' * -1
'%s-%d' % ('x', 3) ¦ '%s' % s ¦ 1 < 2 ¦ 1 < 2 < 3 ¦ 3 > 2 > 2 ¦ 1 == 1.0 ¦ 1 == true ¦ 'a' < 'b'
[1] == [1] ¦ d == d ¦ none == missing ¦ 1 != 2 ¦ 'or' in s ¦ 'x' not in s ¦ 1 in l ¦ 'b' in d
'zz' in d ¦ missing is defined ¦ n is defined ¦ nil is none ¦ s is string
l is string ¦ d is mapping ¦ l is sequence ¦ s is iterable ¦ n is iterable ¦ n is number
f is float ¦ n is integer ¦ yes is boolean ¦ yes is integer ¦ n is odd ¦ n is even
n is divisibleby(7) ¦ s is mapping ¦ l[0] ¦ l[-1] ¦ l[9] ¦ l[1:] ¦ l[:-1] ¦ l[::-1] ¦ l[::2]
s[0] ¦ s[-1] ¦ s[1:3] ¦ s[::-1] ¦ u[6:8] ¦ s[100:] ¦ l[5:] ¦ l[-2:] ¦ d.b ¦ d['b'] ¦ d.items is defined ¦ d.items.type is defined ¦ {'items': 1}['items']
d.missing ¦ d['missing'] ¦ d.a[1].z ¦ rows[0].k ¦ nested.l[0].m ¦ d.get('b') ¦ d.get('q')
d.get('q', 'dflt') ¦ d.keys()|list ¦ d.values()|list ¦ d.items()|list ¦ d | length
d.items() | length ¦ s.upper() ¦ s.lower() ¦ s.title() ¦ s.capitalize() ¦ s.swapcase()
sp.strip() ¦ sp.lstrip() ¦ sp.rstrip() ¦ s.split() ¦ s.split('o') ¦ s.split('o', 1)
s.rsplit('o', 1) ¦ sp.split() ¦ lines.splitlines() ¦ 'a,b,,c'.split(',') ¦ s.startswith('He')
s.endswith('x') ¦ s.startswith(('x', 'H')) ¦ s.replace('o', '0') ¦ s.replace('o', '0', 1)
s.find('o') ¦ s.rfind('o') ¦ s.find('zz') ¦ s.count('l') ¦ s.index('W') ¦ u.find('東')
'-'.join(t) ¦ ''.join(['x', 'y']) ¦ '12'.isdigit() ¦ 'a1'.isalnum() ¦ 'ab'.isalpha()
' '.isspace() ¦ 'AB'.isupper() ¦ 'ab'.islower() ¦ 'a1'.islower() ¦ ''.isdigit()
'x'.center(7, '*') ¦ 'xy'.center(7) ¦ 'x'.ljust(3) ~ '|' ¦ 'x'.rjust(3) ¦ '42'.zfill(5)
'-42'.zfill(5) ¦ 'a=b=c'.partition('=') ¦ 'a=b=c'.rpartition('=')
'prefix-x'.removeprefix('prefix-') ¦ 'x.py'.removesuffix('.py') ¦ "they're".title()
"they're bill's"|title ¦ 'éa'.upper() ¦ 'ß'.upper() ¦ '{} {}'.format(1, 'a')
'{0}{x}'.format(1, x=2) ¦ s|upper ¦ s|lower ¦ s|title ¦ s|capitalize ¦ sp|trim ¦ s|length
l|length ¦ d|length ¦ u|length ¦ s|count ¦ s|replace('l', 'L') ¦ l|first ¦ l|last ¦ e|first
l|sort ¦ l|sort(reverse=true) ¦ t|unique|list ¦ l|reverse|list ¦ s|reverse ¦ l|sum ¦ l|min
l|max ¦ l|join ¦ l|join(', ') ¦ rows|map(attribute='k')|list ¦ rows|map(attribute='k')|join('-')
t|map('upper')|list ¦ rows|selectattr('v')|list ¦ rows|selectattr('k', 'equalto', 'x')|list
rows|rejectattr('v', 'none')|list ¦ l|select('odd')|list ¦ l|reject('odd')|list ¦ d|dictsort
d|items|list ¦ d|list ¦ s|list ¦ rows|groupby('k')|list|length ¦ nil|default('x')
missing|default('x') ¦ ''|default('x', true) ¦ no|d('y', true) ¦ n|string ¦ f|string ¦ l|string
'5'|int ¦ 'x'|int ¦ '2.5'|float ¦ f|int ¦ f|round ¦ 2.567|round(2) ¦ neg|abs ¦ 'a b'|wordcount
l|batch(2)|list ¦ d|tojson ¦ d|tojson(indent=2) ¦ l|tojson ¦ u|tojson
u|tojson(ensure_ascii=true) ¦ q|tojson ¦ f|tojson ¦ whole|tojson ¦ big|tojson ¦ small|tojson
nil|tojson ¦ yes|tojson ¦ e|tojson ¦ d0|tojson ¦ e|tojson(indent=4) ¦ nested|tojson(indent=4)
d|tojson(sort_keys=true) ¦ d|tojson(separators=(',', ':')) ¦ missing|tojson
'</script>&\\'|tojson ¦ [1, 'a']|tojson(indent='\t') ¦ s|e ¦ '<a href="x">'|e ¦ '<b>'|safe
s if n > 3 else 'no' ¦ 'x' if no ¦ n and s ¦ no or 'alt' ¦ not n ¦ not e ¦ no and 1 ¦ nil or 0
'x' is eq('x') ¦ n is gt(3) ¦ n is in([7]) ¦ 3 is in(l) ¦ s is lower ¦ s is upper ¦ s|indent
lines|indent(2) ¦ lines|indent(2, true) ¦ range(3)|list ¦ range(1, 4)|list
range(5, 0, -2)|list ¦ dict(a=1, b='x') ¦ dict(d, z=1) ¦ namespace(a=1).a
strftime_now('%Y-%m-%d %H:%M:%S') ¦ strftime_now('%d %B %Y')
strftime_now('%a %b %e %j %p %I %y %A') ¦ strftime_now('%-d/%-m') ¦ strftime_now('')
missing.attr ¦ missing['x'] ¦ missing() ¦ n.attr ¦ n.attr.more ¦ nil.attr ¦ 'a' + 1 ¦ 1 + 'a'
l + 'a' ¦ d + d ¦ undefined_function(1) ¦ s.nope() ¦ s|nope ¦ n is nope ¦ raise_exception('boom')
raise_exception('a ' ~ n) ¦ n / (n - 7) ¦ n // (n - 7) ¦ n // neg ¦ neg // 3.5 ¦ n % (n - 7) ¦ l.append(4) ¦ d.update({'a': 1}) ¦ d.pop('a')
nil is iterable ¦ missing is iterable ¦ missing is sequence ¦ nil is sequence ¦ missing|length ¦ nil|length
t|upper ¦ d|lower ¦ nil|upper ¦ missing|lower ¦ f|upper ¦ missing|list ¦ missing|join ¦ missing|first ¦ n|length
missing|dictsort ¦ d|upper|length ¦ missing|sort ¦ missing|map('upper')|list ¦ nil|list ¦ missing|count
loop ¦ ''.join(l) ¦ ' '.join(d) ¦ l.index(2) ¦ l.count(1) ¦ t.index('b') ¦ 'a\tb'
"a\"b" ¦ 'é' ¦ '\u00e9' ¦ 1_000 ¦ 0x1F ¦ 1e3 ¦ 1.5e-3 ¦ d.a is sequence ¦ l is mapping
"""

STATEMENTS = [
    "{% for i in l %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for i in l %}{{ loop.first }}{{ loop.last }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
    "{% for i in e %}x{% else %}none{% endfor %}",
    "{% for i in missing %}x{% else %}undefined{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}{{ v }} {% endfor %}",
    "{% for c in 'héy' %}{{ c }}.{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}{{ i }} {% endfor %}",
    "{% for a in [[1, [2]], [3, [4]]] recursive %}{{ a[0] }}{% endfor %}",
    "{% for r in [{'c': [{'c': []}]}] recursive %}<{{ loop.depth }}{{ loop(r.c) }}>{% endfor %}",
    "{% for i in l %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "{% for i in [1, 1, 2] %}{{ loop.changed(i) }} {% endfor %}",
    "{% set a = 1 %}{% for i in l %}{% set a = i %}{% endfor %}{{ a }}",
    "{% set ns = namespace(a=0) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace() %}{{ ns.missing }}|{% set ns._x = 1 %}",
    "{% set a, b = [1, 2] %}{{ a }}{{ b }}",
    "{% set x %}  block {{ n }} {% endset %}[{{ x }}]",
    "{% set x | upper %}block{% endset %}{{ x }}",
    "{% macro m(a, b='d') %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(b=3, a=4) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %} {{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}",
    "{% if n > 5 and s %}a{% elif n %}b{% else %}c{% endif %}",
    "{% if missing %}a{% elif nil %}b{% elif e %}c{% elif '' %}d{% elif 0 %}e{% else %}f{% endif %}",
    "{%- if yes -%}  tight  {%- endif -%}",
    "  {% if yes %}\n  lstrip and trim\n  {% endif %}\nend\n",
    "a\n  {%- set x = 1 %}\n\nb\n\n",
    "line\n    {{ n }}\n  {# comment #}\nnext",
    "{# multi\nline #}x{#- tight -#} y",
    "{% raw %}{{ not }} {% rendered %}{% endraw %}",
    "{%+ if yes %} plus {%+ endif %}",
    "{% filter upper %}shout {{ s }}{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}",
    "{{ '{{' }} {{ '%}' }}",
    "{% set x = 'a' %}{% if x == 'a' %}{% set x = 'b' %}{% endif %}{{ x }}",
    "{% set m = messages | list %}{{ m | length }}{{ m[-1].content }}",
    "{% set m = messages + [{'role': 'x', 'content': 'y'}] %}{{ m | length }}{{ m[-1].role }}",
    "{% set keys = [] %}{% for r in rows %}{% set keys = keys + [r.k] %}{% endfor %}{{ keys }}",
    "{% set ns = namespace(keys=[]) %}{% for r in rows %}{% set ns.keys = ns.keys + [r.k] %}{% endfor %}{{ ns.keys }}",
    "{{ messages[0]['content'] }}{{ messages[0].role }}{{ bos_token }}{{ eos_token }}{{ pad_token }}",
    "{{ messages[-1] }}",
    "{{ tools }}{{ documents }}{{ add_generation_prompt }}",
    "{% set x = cycler('a', 'b') %}{{ x.next() }}{{ x.next() }}{{ x.next() }}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% include 'x' %}",
    "{% if %}",
    "{% for i in l %}",
    "{{ n",
    "{% unknown %}",
    "{{ s | tojson }}{{ {'a': s} | tojson | safe }}",
    "{%- for m in messages %}\n{{- '\\n' if not loop.first }}\n{{- m.content }}\n{%- endfor %}",
]


def case(template, messages, **more):
    return {"template": template, "messages": messages, **more}


def conversations():
    for template in STYLES:
        for talk in TALKS.values():
            yield case(template, talk)
            yield case(template, talk, add_generation_prompt=True)
            yield case(template, talk, tools=[WEATHER, EMPTY_TOOL], add_generation_prompt=True)
    for template in FAMILY_TEMPLATES:
        for talk in FAMILY_TALKS:
            yield case(template, TALKS.get(talk, PART_TALK))
            yield case(template, TALKS.get(talk, PART_TALK), tools=[WEATHER, NULLABLE], add_generation_prompt=True)
        for kwargs in ({"enable_thinking": True}, {"enable_thinking": False, "reasoning_effort": "high"}):
            yield case(template, TALKS["thinking"], add_generation_prompt=True, kwargs=kwargs)
    for flag in (True, False):
        for talk in ("one", "multi", "tool"):
            yield case("qwen3", TALKS[talk], add_generation_prompt=True,
                       kwargs={"enable_thinking": flag})
    yield case("llama3", TALKS["one"], kwargs={"date_string": "1 Jan 2000"})
    for template in ("qwen3", "llama3", "mistral", "phi3"):
        for talk in ("ends_assistant", "thinking", "multi"):
            yield case(template, TALKS[talk], continue_final_message=True)
    parts = [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two "}]}]
    yield case("{{ messages[0].content[1].text | trim }}!", parts, continue_final_message=True)
    yield case("{{ messages[0].content }}", parts)
    yield case("{{ messages[0].role }} content", TALKS["one"], continue_final_message=True)
    yield case("{{ documents[0].title }}", TALKS["one"], documents=[{"title": "T", "text": "x"}])
    yield case("{{ messages | length }}", [])
    # An "items" key hides no method.
    schema = {"items": {"type": "string"}, "keys": 1}
    yield case("{% for k, v in schema.items() %}{{ k }}{% endfor %}{{ schema.keys() | list }}",
               TALKS["one"], kwargs={"schema": schema})


def probes():
    talk = TALKS["one"]
    for expression in EXPRESSIONS.replace("\n", "¦").split("¦"):
        if expression.strip():
            yield case("{{ " + expression.strip() + " }}", talk, kwargs=VALUES)
    for statement in STATEMENTS:
        yield case(statement, talk, kwargs=VALUES)


def cases():
    yield from conversations()
    yield from probes()
