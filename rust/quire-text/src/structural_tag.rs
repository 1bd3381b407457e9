//! Structural tags: text that holds begin markers, constrained contents and end markers, as JSON. Both
//! forms that clients of vLLM and SGLang send are read: a tree of formats under `format` (xgrammar's),
//! and the older list of `structures` with `triggers`. It becomes Lark.

use crate::error::{fail, short, TextError, TextResult};
use crate::grammar_source::{with_whitespace, Whitespace};
use crate::schema_keywords::check_keywords;
use serde_json::{Map, Value as Json};

/// The special token that a text begins with, and the bytes it takes there.
pub type SpecialPrefix<'a> = &'a dyn Fn(&str) -> Option<(u32, usize)>;

/// `path`: what errors call the object.
pub fn to_lark(
    source: &Json,
    path: &str,
    whitespace: Whitespace,
    special: SpecialPrefix,
) -> TextResult<String> {
    let mut writer = Writer { rules: String::new(), count: 0, whitespace, special };
    let place = Place { object: fields(source, path)?, path };
    let start = if place.object.contains_key("format") {
        place.only(&["type", "format"])?;
        writer.format(place.get("format")?, &place.join("format"), true)?
    } else {
        place.only(&["type", "structures", "triggers"])?;
        writer.structures(&place)?
    };
    Ok(format!("start: {start}\n{}", writer.rules))
}

/// An object and where it stands in the request.
struct Place<'a> {
    object: &'a Map<String, Json>,
    path: &'a str,
}

fn fields<'a>(value: &'a Json, path: &str) -> TextResult<&'a Map<String, Json>> {
    value.as_object().ok_or_else(|| TextError(format!("{path} must be an object")))
}

impl<'a> Place<'a> {
    fn join(&self, key: &str) -> String {
        format!("{}.{}", self.path, short(key))
    }
    fn only(&self, known: &[&str]) -> TextResult<()> {
        match self.object.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => fail(format!("{} is not supported", self.join(key))),
            None => Ok(()),
        }
    }
    fn get(&self, key: &str) -> TextResult<&'a Json> {
        self.object.get(key).ok_or_else(|| TextError(format!("{} is required", self.join(key))))
    }
    fn text(&self, key: &str) -> TextResult<&'a str> {
        let value = self.get(key)?.as_str();
        value.ok_or_else(|| TextError(format!("{} must be a string", self.join(key))))
    }
    fn flag(&self, key: &str) -> TextResult<bool> {
        let value = self.object.get(key).map_or(Some(false), Json::as_bool);
        value.ok_or_else(|| TextError(format!("{} must be true or false", self.join(key))))
    }
    fn list(&self, key: &str) -> TextResult<&'a Vec<Json>> {
        let list = self.get(key)?.as_array().filter(|list| !list.is_empty());
        list.ok_or_else(|| {
            TextError(format!("{} must be a list that is not empty", self.join(key)))
        })
    }
    fn texts(&self, key: &str) -> TextResult<Vec<&'a str>> {
        let of = |value: &'a Json| value.as_str().filter(|text| !text.is_empty());
        let texts: Option<Vec<&str>> = self.list(key)?.iter().map(of).collect();
        texts.ok_or_else(|| {
            TextError(format!("{} must be a list of strings that are not empty", self.join(key)))
        })
    }
}

/// A tag: what begins it, its content and what ends it, all as Lark but `begin`.
struct Tag {
    begin: String,
    rest: String,
}

struct Writer<'a> {
    rules: String,
    count: usize,
    whitespace: Whitespace,
    special: SpecialPrefix<'a>,
}

impl Writer<'_> {
    /// A new rule of this text; its name. `options`: "[lazy]" or nothing.
    fn rule(&mut self, options: &str, text: &str) -> String {
        let name = format!("r{}", self.count);
        self.count += 1;
        self.rules += &format!("{name}{options}: {text}\n");
        name
    }

    /// `last`: nothing follows, so any text may come.
    fn format(&mut self, format: &Json, path: &str, last: bool) -> TextResult<String> {
        let place = Place { object: fields(format, path)?, path };
        match place.text("type")? {
            "const_string" => {
                place.only(&["type", "value"])?;
                Ok(self.literal(place.text("value")?))
            }
            "json_schema" => {
                place.only(&["type", "json_schema"])?;
                self.schema(place.get("json_schema")?, &place.join("json_schema"))
            }
            "regex" => {
                place.only(&["type", "pattern"])?;
                let pattern = in_slashes(place.text("pattern")?);
                Ok(self.rule("", &pattern))
            }
            "any_text" => {
                place.only(&["type"])?;
                if last {
                    return Ok(self.rule("", ANY_TEXT));
                }
                fail(format!("{path}: any_text must be the last of all, or a tag's content"))
            }
            "sequence" => {
                place.only(&["type", "elements"])?;
                let elements = place.list("elements")?;
                let mut all = Vec::new();
                for (i, element) in elements.iter().enumerate() {
                    let inner = format!("{path}.elements[{i}]");
                    all.push(self.format(element, &inner, last && i + 1 == elements.len())?);
                }
                Ok(self.rule("", &all.join(" ")))
            }
            "or" => {
                place.only(&["type", "elements"])?;
                let mut all = Vec::new();
                for (i, element) in place.list("elements")?.iter().enumerate() {
                    all.push(self.format(element, &format!("{path}.elements[{i}]"), last)?);
                }
                Ok(self.rule("", &all.join(" | ")))
            }
            "tag" => {
                let tag = self.tag(&place)?;
                let begin = self.literal(&tag.begin);
                Ok(self.rule("", &format!("{begin} {}", tag.rest)))
            }
            "triggered_tags" => self.triggered_tags(&place, last),
            "tags_with_separator" => self.tags_with_separator(&place),
            other => {
                let other = short(other);
                fail(format!("{path}.type: \"{}\" is not supported", other.escape_debug()))
            }
        }
    }

    fn tag(&mut self, place: &Place) -> TextResult<Tag> {
        place.only(&["type", "begin", "content", "end"])?;
        let end = place.text("end")?;
        let content = place.get("content")?;
        let rest = if content.get("type") == Some(&Json::from("any_text")) {
            if end.is_empty() {
                return fail(format!("{}: any text needs an end", place.path));
            }
            self.text_until(end)
        } else {
            let inner = self.format(content, &place.join("content"), false)?;
            format!("{inner} {}", self.literal(end))
        };
        Ok(Tag { begin: place.text("begin")?.to_string(), rest })
    }

    fn tags(&mut self, place: &Place) -> TextResult<Vec<Tag>> {
        let mut tags = Vec::new();
        for (i, tag) in place.list("tags")?.iter().enumerate() {
            let path = format!("{}.tags[{i}]", place.path);
            tags.push(self.tag(&Place { object: fields(tag, &path)?, path: &path })?);
        }
        Ok(tags)
    }

    fn triggered_tags(&mut self, place: &Place, last: bool) -> TextResult<String> {
        place.only(&["type", "triggers", "tags", "at_least_one", "stop_after_first"])?;
        let (least, one) = (place.flag("at_least_one")?, place.flag("stop_after_first")?);
        if !last && !one {
            return fail(format!("{}: triggered_tags must be the last of all", place.path));
        }
        let triggers = place.texts("triggers")?;
        let tags = self.tags(place)?;
        self.after_triggers(&triggers, &tags, least, one, place.path)
    }

    fn structures(&mut self, place: &Place) -> TextResult<String> {
        let triggers = place.texts("triggers")?;
        let mut tags = Vec::new();
        for (i, structure) in place.list("structures")?.iter().enumerate() {
            let path = format!("{}.structures[{i}]", place.path);
            let inner = Place { object: fields(structure, &path)?, path: &path };
            inner.only(&["begin", "schema", "end"])?;
            let schema = match inner.object.get("schema") {
                Some(schema) => self.schema(schema, &inner.join("schema"))?,
                None => self.schema(&Json::Bool(true), path.as_str())?,
            };
            let rest = format!("{schema} {}", self.literal(inner.text("end")?));
            tags.push(Tag { begin: inner.text("begin")?.to_string(), rest });
        }
        self.after_triggers(&triggers, &tags, false, false, place.path)
    }

    /// Any text, and after each trigger one of the tags that begin with it.
    fn after_triggers(
        &mut self,
        triggers: &[&str],
        tags: &[Tag],
        at_least_one: bool,
        stop_after_first: bool,
        path: &str,
    ) -> TextResult<String> {
        let mut by_trigger = vec![Vec::new(); triggers.len()];
        for tag in tags {
            // The shortest, which comes first in the text.
            let fitting = (0..triggers.len()).filter(|&i| tag.begin.starts_with(triggers[i]));
            let Some(i) = fitting.min_by_key(|&i| triggers[i].len()) else {
                let begin = short(&tag.begin);
                let begin = begin.escape_debug();
                return fail(format!("{path}: no trigger is what the tag \"{begin}\" begins with"));
            };
            let begin = self.literal(&tag.begin[triggers[i].len()..]);
            by_trigger[i].push(format!("{begin} {}", tag.rest));
        }
        let mut any = Vec::new();
        for (trigger, rests) in triggers.iter().zip(by_trigger) {
            if rests.is_empty() {
                let trigger = short(trigger);
                return fail(format!("{path}: no tag begins with \"{}\"", trigger.escape_debug()));
            }
            let until = self.text_until(trigger);
            let rest = self.rule("", &rests.join(" | "));
            any.push(format!("{until} {rest}"));
        }
        let any = self.rule("", &any.join(" | "));
        let text = self.rule("", ANY_TEXT);
        Ok(match (at_least_one, stop_after_first) {
            (true, true) => any,
            (false, true) => self.rule("", &format!("{any} | {text}")),
            (true, false) => self.rule("", &format!("{any}+ {text}")),
            (false, false) => self.rule("", &format!("{any}* {text}")),
        })
    }

    fn tags_with_separator(&mut self, place: &Place) -> TextResult<String> {
        place.only(&["type", "tags", "separator", "at_least_one", "stop_after_first"])?;
        let mut all = Vec::new();
        for tag in self.tags(place)? {
            all.push(format!("{} {}", self.literal(&tag.begin), tag.rest));
        }
        let tag = self.rule("", &all.join(" | "));
        let separator = self.literal(place.text("separator")?);
        let some = if place.flag("stop_after_first")? {
            tag
        } else {
            self.rule("", &format!("{tag} ({separator} {tag})*"))
        };
        Ok(if place.flag("at_least_one")? { some } else { self.rule("", &format!("{some}?")) })
    }

    fn schema(&mut self, schema: &Json, path: &str) -> TextResult<String> {
        check_keywords(schema, path)?;
        let text = with_whitespace(schema.clone(), self.whitespace).to_string();
        Ok(self.rule("", &format!("%json {text}")))
    }

    /// The parts of a text: special tokens' ids and what stands between them.
    fn parts<'t>(&self, mut text: &'t str) -> Vec<(&'t str, Option<u32>)> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < text.len() {
            match (self.special)(&text[at..]) {
                Some((id, length)) => {
                    if at > 0 {
                        parts.push((&text[..at], None));
                    }
                    parts.push((&text[at..at + length], Some(id)));
                    (text, at) = (&text[at + length..], 0);
                }
                None => at += text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        if !text.is_empty() {
            parts.push((text, None));
        }
        parts
    }

    fn literal(&self, text: &str) -> String {
        let parts = self.parts(text).into_iter().map(|(text, id)| match id {
            Some(id) => format!("<[{id}]>"),
            None => format!("/{}/", escaped(text)),
        });
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() {
            "\"\"".to_string()
        } else {
            parts.join(" ")
        }
    }

    /// Any text up to the first `end`, which is part of it. Text cannot spell a special token, so one
    /// needs no search.
    fn text_until(&mut self, end: &str) -> String {
        let mut parts = self.parts(end).into_iter();
        match parts.next() {
            Some((first, None)) => {
                let until = format!("/(?s:.*){}/", escaped(first));
                let until = self.rule("[lazy]", &until);
                let rest = self.literal(&end[first.len()..]);
                format!("{until} {rest}")
            }
            _ => {
                let text = self.rule("", ANY_TEXT);
                format!("{text} {}", self.literal(end))
            }
        }
    }
}

const ANY_TEXT: &str = "/(?s:.*)/";

/// Every character but letters and digits by its number: nothing of it has a meaning in a regular
/// expression or in Lark.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_string(),
        c => format!("\\x{{{:x}}}", c as u32),
    };
    text.chars().map(escape).collect()
}

/// A client's regular expression between slashes: its own slashes and line breaks are escaped.
fn in_slashes(pattern: &str) -> String {
    let mut out = String::from("/(?:");
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                out.push(c);
                out.extend(chars.next());
            }
            '/' => out += "\\/",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            c => out.push(c),
        }
    }
    out + ")/"
}
