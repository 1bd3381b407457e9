"""Chat templates with the constructs and the special tokens of model families' own, of our own writing.

What each family's template does that others do not: gpt-oss writes tools as TypeScript through macros that call each
other and channels around each message; Gemma 4 writes JSON without quotes from sorted maps; GLM-4.5 and MiniMax-M2 look
for the last question and write a tag for each argument; Mistral's later ones walk over parts and count what comes when.
"""

HARMONY = r"""{%- macro ts_type(spec, required_names, is_optional=false) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}
            {{- (ts_type(spec['items'], []) if spec['items']['type'] != "object" else "object") + "[]" }}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
    {%- elif spec.type is iterable and spec.type is not string and spec.type is not mapping -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.oneOf or spec.anyOf -%}
        {%- for one in spec.oneOf or spec.anyOf -%}
            {{- ts_type(one, []) -}}{{- " | " if not loop.last -}}
        {%- endfor -%}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}{{- '"' + spec.enum | join('" | "') + '"' -}}{%- else -%}{{- "string" }}{%- if spec.nullable %}{{- " | null" }}{%- endif %}{%- endif -%}
    {%- elif spec.type in ("number", "integer") -%}
        {{- "number" }}
    {%- elif spec.type == "object" and spec.properties -%}
        {{- "{\n" }}
        {%- for name, prop in spec.properties.items() -%}
            {{- name -}}
            {%- if name not in (spec.required or []) -%}{{- "?" }}{%- endif -%}
            {{- ": " }}{{ ts_type(prop, spec.required or []) }}{{- ", " if not loop.last }}
        {%- endfor -%}
        {{- "}" }}
    {%- else -%}
        {{- "any" }}
    {%- endif -%}
{%- endmacro -%}
{%- macro namespace_of(name, tools) -%}
    {{- "## " + name + "\n\nnamespace " + name + " {\n\n" }}
    {%- for tool in tools %}
        {%- set f = tool.function %}
        {{- "// " + f.description + "\ntype " + f.name + " = " }}
        {%- if f.parameters and f.parameters.properties %}
            {{- "(_: {\n" }}
            {%- for key, spec in f.parameters.properties.items() %}
                {%- if spec.description %}{{- "// " + spec.description + "\n" }}{%- endif %}
                {{- key }}{{- "?" if key not in (f.parameters.required or []) }}{{- ": " + ts_type(spec, f.parameters.required or []) }}
                {%- if spec.default is defined -%}
                    {%- if spec.enum %}{{- ", // default: " + spec.default }}{%- else %}{{- ", // default: " + spec.default | tojson }}{%- endif -%}
                {%- endif %}
                {{- ",\n" }}
            {%- endfor %}
            {{- "}) => any;\n\n" }}
        {%- else %}
            {{- "() => any;\n\n" }}
        {%- endif %}
    {%- endfor %}
    {{- "} // namespace " + name }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}
{%- if not model_identity is defined %}{%- set model_identity = "You are a test." %}{%- endif %}
{{- model_identity + "\nCurrent date: " + strftime_now("%Y-%m-%d") + "\n\nReasoning: " + (reasoning_effort if reasoning_effort is defined else "medium") + "<|end|>" }}
{%- if messages[0].role in ("developer", "system") %}
    {%- set instructions, loop_messages = messages[0].content, messages[1:] %}
{%- else %}
    {%- set instructions, loop_messages = "", messages %}
{%- endif %}
{%- if instructions or tools %}
    {{- "<|start|>developer<|message|>" }}
    {%- if instructions %}{{- "# Instructions\n\n" + instructions }}{%- endif %}
    {%- if tools -%}{{- "\n\n# Tools\n\n" + namespace_of("functions", tools) }}{%- endif -%}
    {{- "<|end|>" }}
{%- endif %}
{%- set last_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and message.content and "<|channel|>analysis" in message.content %}
            {{- raise_exception("Channels belong into a message's thinking.") }}
        {%- endif %}
        {%- if "tool_calls" in message and message.tool_calls %}
            {%- set ahead = namespace(final=false) %}
            {%- for later in loop_messages[loop.index:] if later.role == 'assistant' and "tool_calls" not in later %}{%- set ahead.final = true %}{%- endfor %}
            {%- if message.thinking and not ahead.final %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {%- set call = message.tool_calls[0].function or message.tool_calls[0] %}
            {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" + call.arguments | tojson + "<|call|>" }}
            {%- set last_call.name = call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_call.name is none %}{{- raise_exception("A tool's message follows its call") }}{%- endif %}
        {{- "<|start|>functions." + last_call.name + " to=assistant<|channel|>commentary<|message|>" + message.content | tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""

GEMMA4 = r"""{%- macro argument(value, escape_keys=True) -%}
    {%- if value is string -%}
        {{- '<|"|>' + value + '<|"|>' -}}
    {%- elif value is boolean -%}
        {{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {{- '{' -}}
        {%- for k, v in value | dictsort -%}
            {{- ('<|"|>' + k + '<|"|>' if escape_keys else k) + ':' }}{{- argument(v, escape_keys=escape_keys) }}{{- ',' if not loop.last }}
        {%- endfor -%}
        {{- '}' -}}
    {%- elif value is sequence -%}
        [{%- for item in value -%}{{- argument(item, escape_keys) }}{{- ',' if not loop.last }}{%- endfor -%}]
    {%- else -%}
        {{- value -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro parameters(properties, required) -%}
    {%- set known = ['description', 'type'] -%}
    {%- set ns = namespace(first=true) -%}
    {%- for key, spec in properties | dictsort -%}
        {%- if key not in known -%}
            {%- if not ns.first %},{% endif -%}
            {%- set ns.first = false -%}
            {{ key }}:{
            {%- if spec['description'] -%}description:<|"|>{{ spec['description'] }}<|"|>,{%- endif -%}
            {%- if spec['items'] is mapping and spec['items'] -%}
                items:{
                {%- for k, v in spec['items'] | dictsort -%}
                    {{ k }}:{{ argument(v | upper if k == 'type' and v is string else (v | map('upper') | list if k == 'type' else v)) }}{{- ',' if not loop.last }}
                {%- endfor -%}
                },
            {%- endif -%}
            type:<|"|>{{ spec['type'] | upper }}<|"|>}
        {%- endif -%}
    {%- endfor -%}
{%- endmacro -%}
{%- macro without_thoughts(text) -%}
    {%- set ns = namespace(out='') -%}
    {%- for part in text.split('<channel|>') -%}
        {%- set ns.out = ns.out + (part.split('<|channel>')[0] if '<|channel>' in part else part) -%}
    {%- endfor -%}
    {{- ns.out | trim -}}
{%- endmacro -%}
{{- bos_token -}}
{%- set first = messages[0]['role'] -%}
{%- if tools or enable_thinking is defined and enable_thinking or first in ['system', 'developer'] -%}
    {{- '<|turn>system\n' -}}
    {%- if enable_thinking is defined and enable_thinking -%}{{- '<|think|>' -}}{%- endif -%}
    {%- if first in ['system', 'developer'] -%}
        {{- messages[0]['content'] | trim -}}
        {%- set loop_messages = messages[1:] -%}
    {%- endif -%}
    {%- for tool in tools or [] -%}
        {{- '<|tool>declaration:' + tool['function']['name'] + '{' }}{{- parameters(tool['function']['parameters']['properties'], tool['function']['parameters']['required']) }}{{- '}<tool|>' -}}
    {%- endfor -%}
    {{- '<turn|>\n' -}}
{%- endif -%}
{%- for message in (loop_messages if loop_messages is defined else messages) -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {%- if role == 'tool' -%}
        {{- '<|tool_response>response:' + (message.get('name') | default('unknown', true)) + '{value:' }}{{- argument(message['content'], escape_keys=False) }}{{- '}<tool_response|>' -}}
        {%- continue -%}
    {%- endif -%}
    {{- '<|turn>' + role + '\n' }}
    {%- for call in message.get('tool_calls') or [] -%}
        {{- '<|tool_call>call:' + call['function']['name'] + '{' -}}
        {%- for k, v in call['function']['arguments'] | dictsort -%}
            {{- k + ':' }}{{- argument(v, escape_keys=False) }}{{- ',' if not loop.last }}
        {%- endfor -%}
        {{- '}<tool_call|>' -}}
    {%- endfor -%}
    {%- if message['content'] is string -%}
        {{- without_thoughts(message['content']) if role == 'model' else message['content'] | trim -}}
    {%- elif message['content'] is sequence -%}
        {%- for part in message['content'] -%}{%- if part['type'] == 'text' -%}{{- part['text'] | trim -}}{%- endif -%}{%- endfor -%}
    {%- endif -%}
    {{- '<turn|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|turn>model\n' -}}{%- endif -%}
"""

GLM = r"""[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools
<tools>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tools>{%- endif -%}
{%- macro visible(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set thoughts = '' %}
{%- set content = visible(m.content) %}
{%- if m.reasoning_content is string %}{%- set thoughts = m.reasoning_content %}
{%- elif '</think>' in content %}
    {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
    {%- set content = content.split('</think>')[-1].lstrip('\n') %}
{%- endif %}
{%- if loop.index0 > ns.last and thoughts -%}
{{ '\n<think>' + thoughts.strip() + '</think>'}}
{%- else -%}
{{ '\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}{{ '\n' + content.strip() }}{%- endif -%}
{% if m.tool_calls %}
{% for call in m.tool_calls %}
{%- if call.function %}{%- set call = call.function %}{%- endif %}
{{ '\n<tool_call>' + call.name }}
{% set _args = call.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if m.content is string -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
    {{- '<|observation|>' }}
{%- endif %}
{{- '\n<tool_response>\n' }}
{{- m.content }}
{{- '\n</tool_response>' }}
{%- else -%}
<|observation|>{% for tr in m.content %}

<tool_response>
{{ tr.output if tr.output is defined else tr }}
</tool_response>{% endfor -%}
{% endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}
"""

MISTRAL_PARTS = r"""{%- set default_system = 'Today is ' + strftime_now('%Y-%m-%d') + '.' %}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {{- '[SYSTEM_PROMPT]' -}}
    {%- if messages[0]['content'] is string %}
        {{- messages[0]['content'] -}}
    {%- else %}
        {%- for block in messages[0]['content'] %}
            {%- if block['type'] in ('text', 'thinking') %}{{- block['text'] if block['type'] == 'text' else '[THINK]' + block['thinking'] + '[/THINK]' }}{%- else %}{{- raise_exception('Only text in a system message, not ' + block['type']) }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '[/SYSTEM_PROMPT]' -}}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
    {{- '[SYSTEM_PROMPT]' + default_system + '[/SYSTEM_PROMPT]' }}
{%- endif %}
{%- if tools is iterable and tools | length > 0 %}
    {{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and (message.tool_calls is not defined or message.tool_calls is none or message.tool_calls | length == 0)) %}
        {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}
            {{- raise_exception('Roles must alternate.') }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if message['content'] is string %}
            {{- '[INST]' + message['content'] + '[/INST]' }}
        {%- elif message['content'] | length > 0 %}
            {{- '[INST]' }}
            {%- set blocks = message['content'] | sort(attribute='type', reverse=true) if message['content'] | length == 2 else message['content'] %}
            {%- for block in blocks %}{%- if block['type'] == 'text' %}{{- block['text'] }}{%- elif block['type'] in ['image', 'image_url'] %}{{- '[IMG]' }}{%- endif %}{%- endfor %}
            {{- '[/INST]' }}
        {%- else %}
            {{- raise_exception('User message must have content.') }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {%- if (message['content'] is none or message['content'] == '' or message['content'] | length == 0) and (message['tool_calls'] is not defined or message['tool_calls'] | length == 0) %}
            {{- raise_exception('Assistant message must have content or calls.') }}
        {%- endif %}
        {%- if message['content'] is string and message['content'] %}{{- message['content'] }}{%- endif %}
        {%- if message['tool_calls'] is defined and message['tool_calls'] | length > 0 %}
            {%- for call in message['tool_calls'] %}
                {%- set arguments = call['function']['arguments'] %}
                {%- if arguments is not string %}{%- set arguments = arguments | tojson | safe %}{%- elif arguments == '' %}{%- set arguments = '{}' %}{%- endif %}
                {{- '[TOOL_CALLS]' + call['function']['name'] + '[ARGS]' + arguments }}
            {%- endfor %}
        {%- endif %}
        {{- eos_token }}
    {%- elif message['role'] == 'tool' %}
        {{- '[TOOL_RESULTS]' + message['content'] | string + '[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception('Not a role: ' + message['role']) }}
    {%- endif %}
{%- endfor %}
"""

FAMILY_TEMPLATES = {"harmony": HARMONY, "gemma4": GEMMA4, "glm": GLM, "mistral_parts": MISTRAL_PARTS}
