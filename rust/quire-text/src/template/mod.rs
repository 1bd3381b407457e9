//! Chat templates, rendered as transformers renders them and within limits.

mod compile;
mod filters;
mod json;
mod meter;
mod methods;
mod namespace;
mod operators;
mod python;
mod scalars;
mod strftime;
mod string_methods;
#[cfg(test)]
mod template_test;
mod tree_check;

use crate::big_stack::on_big_stack;
use crate::budget::Budget;
use crate::error::{fail, TextError, TextResult};
use crate::model_files::{
    read_optional, read_tokenizer_config, token_text, ModelFiles, SpecialTokens,
};
use compile::{compile, Compiled};
pub use meter::Limits;
use minijinja::machinery::{make_string_output, Vm};
use minijinja::{AutoEscape, Environment, Value};
use serde_json::{Map, Value as Json};
use std::collections::HashSet;
pub use strftime::Now;

pub struct ChatTemplates {
    /// (name, template): "default" and "tool_use", where the model has them.
    templates: Vec<(String, Template)>,
    special_tokens: Vec<(String, String)>,
}

struct Template {
    source: String,
    compiled: Compiled,
}

/// What a rendering is made from; the JSON fields are texts, empty where there is nothing.
pub struct Input<'a> {
    pub messages: &'a str,
    pub tools: &'a str,
    pub documents: &'a str,
    pub kwargs: &'a str,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    pub now: Now,
    pub limits: Limits,
    pub budget: Budget,
}

/// A model's templates: chat_template.jinja, or tokenizer_config.json's
/// `chat_template` (one template or a list of named ones). None where there is neither.
pub fn load(from: ModelFiles) -> TextResult<Option<ChatTemplates>> {
    let config = read_tokenizer_config(from)?;
    let mut sources: Vec<(String, String)> = vec![];
    let mut origin = "tokenizer_config.json";
    if let Some(bytes) = read_optional(from, "chat_template.jinja")? {
        origin = "chat_template.jinja";
        let text = String::from_utf8(bytes)
            .map_err(|_| TextError(format!("{}: not UTF-8", from.name(origin))))?;
        sources.push(("default".into(), text));
    } else if let Some(bytes) = read_optional(from, "chat_template.json")? {
        origin = "chat_template.json";
        let json: Json = serde_json::from_slice(&bytes)
            .map_err(|e| TextError(format!("{}: {e}", from.name(origin))))?;
        sources = named_sources(&json["chat_template"]);
    } else {
        sources.extend(named_sources(&config["chat_template"]));
    }
    if sources.is_empty() {
        return Ok(None);
    }
    let special = SpecialTokens::read(from, &config)?;
    let mut seen = HashSet::new();
    let special_tokens = special
        .named
        .iter()
        .filter(|(name, _)| seen.insert(name))
        .filter_map(|(name, value)| Some((name.clone(), token_text(value)?.to_string())))
        .collect();
    let templates = used_sources(sources)
        .into_iter()
        .map(|(name, source)| match build(source) {
            Ok(template) => Ok((name, template)),
            Err(e) => fail(format!("{}: chat template: {e}", from.name(origin))),
        })
        .collect::<TextResult<_>>()?;
    Ok(Some(ChatTemplates { templates, special_tokens }))
}

/// Those that a request can come to, as transformers chooses: the only one, or the ones called
/// "default" and "tool_use". The rest are not compiled: there may be thousands.
fn used_sources(mut sources: Vec<(String, String)>) -> Vec<(String, String)> {
    if let [(name, _)] = sources.as_mut_slice() {
        *name = "default".into();
        return sources;
    }
    let mut first = |name: &str| {
        let at = sources.iter().position(|(n, _)| n == name)?;
        Some(sources.remove(at))
    };
    ["default", "tool_use"].into_iter().filter_map(&mut first).collect()
}

fn named_sources(value: &Json) -> Vec<(String, String)> {
    if let Some(text) = value.as_str() {
        return vec![("default".into(), text.into())];
    }
    let named = |v: &Json| Some((v["name"].as_str()?.into(), v["template"].as_str()?.into()));
    value.as_array().into_iter().flatten().filter_map(named).collect()
}

/// A template given as text, with the special tokens as a JSON object of names and texts.
pub fn from_source(source: &str, special_tokens: &str) -> TextResult<ChatTemplates> {
    let tokens = match parse_json(special_tokens, "special tokens")? {
        Json::Object(map) => map,
        _ => Map::new(),
    };
    let special_tokens = tokens
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_str()?.to_string())))
        .collect();
    let template = build(source.to_string())?;
    Ok(ChatTemplates { templates: vec![("default".into(), template)], special_tokens })
}

fn build(source: String) -> TextResult<Template> {
    let compiled =
        on_big_stack("chat template", || compile(&source).map_err(|e| TextError(describe(&e))))?;
    Ok(Template { source, compiled })
}

/// One line: the kind, the detail and the line, without source excerpts or values.
fn describe(error: &minijinja::Error) -> String {
    let mut text = match error.detail() {
        Some(detail) => detail.to_string(),
        None => error.kind().to_string(),
    };
    if let Some(line) = error.line() {
        text += &format!(" (line {line} of the chat template)");
    }
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}

fn parse_json(text: &str, what: &str) -> TextResult<Json> {
    if text.trim().is_empty() {
        return Ok(Json::Null);
    }
    serde_json::from_str(text).map_err(|e| TextError(format!("{what}: {e}")))
}

impl ChatTemplates {
    /// As transformers chooses: "tool_use" when there are tools and such a template.
    fn choose(&self, with_tools: bool) -> TextResult<&Template> {
        let find = |name: &str| self.templates.iter().find(|(n, _)| n == name).map(|(_, t)| t);
        let tool_use = if with_tools { find("tool_use") } else { None };
        match tool_use.or_else(|| find("default")) {
            Some(template) => Ok(template),
            None => fail("the model has several chat templates and none is named \"default\""),
        }
    }

    /// Whether any of the templates looks the variable up.
    pub fn reads(&self, variable: &str) -> bool {
        self.templates.iter().any(|(_, template)| template.compiled.reads(variable))
    }

    /// Of all templates, one after the other.
    pub fn source(&self) -> String {
        let texts: Vec<&str> = self.templates.iter().map(|(_, t)| t.source.as_str()).collect();
        texts.join("\n")
    }

    pub fn render(&self, input: &Input) -> TextResult<String> {
        let tools = parse_json(input.tools, "tools")?;
        let template = self.choose(tools.is_array())?;
        let mut messages = parse_messages(input.messages)?;
        let tail = match input.continue_final_message {
            true => Some(mark_final_message(&mut messages, &template.source)?),
            false => None,
        };
        let mut context = Map::new();
        for (name, text) in &self.special_tokens {
            context.insert(name.clone(), Json::from(text.as_str()));
        }
        context.insert("messages".into(), Json::Array(messages));
        context.insert("tools".into(), tools);
        context.insert("documents".into(), parse_json(input.documents, "documents")?);
        context.insert("add_generation_prompt".into(), input.add_generation_prompt.into());
        add_kwargs(&mut context, input.kwargs)?;
        let text = on_big_stack("chat template", || run(&template.compiled, context, input))?;
        match tail {
            Some(tail) => cut_after_final_message(text, &tail),
            None => Ok(text),
        }
    }
}

/// How often templates read their input: a handful of passes over all messages.
const WORK_PER_INPUT_BYTE: u64 = 64;

fn run(compiled: &Compiled, context: Map<String, Json>, input: &Input) -> TextResult<String> {
    let mut limits = input.limits;
    let texts = [input.messages, input.tools, input.documents, input.kwargs];
    let input_bytes: u64 = texts.iter().map(|text| text.len() as u64).sum();
    limits.work = limits.work.saturating_add(input_bytes.saturating_mul(WORK_PER_INPUT_BYTE));
    strftime::set_now(input.now);
    let env = environment(input.limits.fuel);
    let root = Value::from_serialize(Json::Object(context));
    let mut text = String::new();
    let budget = input.budget.on_this_thread();
    let (result, raised) = meter::metered(limits, budget, || {
        let mut out = make_string_output(&mut text);
        let none = AutoEscape::None;
        Vm::new(&env)
            .eval(&compiled.instructions, root, &compiled.blocks, &mut out, none)
            .map(|_| ())
    });
    match result {
        Ok(()) => Ok(text),
        Err(error) => fail(raised.unwrap_or_else(|| describe(&error))),
    }
}

fn environment(fuel: u64) -> Environment<'static> {
    let mut env = Environment::empty();
    operators::register(&mut env);
    methods::register(&mut env);
    filters::register(&mut env);
    env.set_fuel(Some(fuel));
    env.set_formatter(|out, _state, value| {
        let text = python::str_of(value)?;
        Ok(out.write_str(&text)?)
    });
    env
}

/// Names that a request's template arguments must not take over.
const RESERVED: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

fn add_kwargs(context: &mut Map<String, Json>, kwargs: &str) -> TextResult<()> {
    let map = match parse_json(kwargs, "chat_template_kwargs")? {
        Json::Null => return Ok(()),
        Json::Object(map) => map,
        _ => return fail("chat_template_kwargs must be an object"),
    };
    for (name, value) in map {
        if RESERVED.contains(&name.as_str()) || name == "chat_template" {
            return fail(format!("chat_template_kwargs must not set \"{name}\""));
        }
        context.insert(name, value);
    }
    Ok(())
}

/// The names under which clients send a message's reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Parses the messages and, as transformers does, drops their null fields and gives reasoning the
/// names that templates read.
fn parse_messages(text: &str) -> TextResult<Vec<Json>> {
    let Json::Array(messages) = parse_json(text, "messages")? else {
        return fail("messages must be a list");
    };
    if messages.is_empty() {
        return fail("messages must not be empty");
    }
    messages.into_iter().map(plain_message).collect()
}

fn plain_message(message: Json) -> TextResult<Json> {
    let Json::Object(mut message) = message else {
        return fail("every message must be an object");
    };
    // Clients send `"content": null`; templates test for the key or would print "None".
    message.retain(|_, value| !value.is_null());
    let found = REASONING.iter().filter_map(|name| message.get(*name)).find(|v| !v.is_null());
    let Some(reasoning) = found.cloned() else { return Ok(Json::Object(message)) };
    let mut aliased = Map::new();
    aliased.insert("thinking".into(), reasoning.clone());
    aliased.extend(message);
    aliased.insert("reasoning_content".into(), reasoning);
    Ok(Json::Object(aliased))
}

const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Appends a tag to the final message's text, to find where the rendered message ends. Returns the
/// text without the tag.
fn mark_final_message(messages: &mut [Json], template: &str) -> TextResult<String> {
    let Some(last) = messages.last_mut() else {
        return fail("continue_final_message is set but the conversation is empty!");
    };
    if !template.contains("content") {
        return fail("continue_final_message is set but the chat template reads no \"content\"");
    }
    let no_text = "continue_final_message is set but we could not find any text to continue in \
                   the final message!";
    let slot = match &mut last["content"] {
        Json::Array(blocks) => blocks.iter_mut().rev().find_map(|block| block.get_mut("text")),
        other => Some(other),
    };
    let Some(Json::String(text)) = slot else { return fail(no_text) };
    let original = text.clone();
    text.push_str(TAG);
    Ok(original)
}

fn cut_after_final_message(rendered: String, message: &str) -> TextResult<String> {
    let strip = |s: &str| s.trim_matches(python::is_space).to_string();
    let at = rendered.rfind(TAG.trim_end());
    let (Some(at), true) = (at, rendered.contains(&strip(message))) else {
        return fail(
            "continue_final_message is set but the final message does not appear in the chat \
             after applying the chat template! This can happen if the chat template deletes \
             portions of the final message.",
        );
    };
    let kept = &rendered[..at];
    if rendered[at..].starts_with(TAG) {
        return Ok(kept.to_string());
    }
    // The template trimmed the message, so its trailing space goes as well.
    Ok(kept.trim_end_matches(python::is_space).to_string())
}
