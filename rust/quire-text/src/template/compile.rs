//! Source text to instructions for minijinja's machine, with the instructions whose cost depends on
//! their operands replaced by calls of our metered operators.

use super::meter::error;
use super::methods;
use super::tree_check::check_tree;
use minijinja::machinery::{parse, CodeGenerator, Instruction, Instructions, WhitespaceConfig};
use minijinja::Error;
use std::collections::BTreeMap;

/// The longest template that is accepted; the longest in use have about 30 kB.
const MAX_SOURCE_BYTES: usize = 1 << 20;

pub struct Compiled {
    // Both borrow from `_source`: they are declared, and so dropped, before it.
    pub instructions: Instructions<'static>,
    pub blocks: BTreeMap<&'static str, Instructions<'static>>,
    _source: Box<str>,
}

impl Compiled {
    pub fn reads(&self, variable: &str) -> bool {
        std::iter::once(&self.instructions)
            .chain(self.blocks.values())
            .flat_map(|code| (0..).map_while(|index| code.get(index)))
            .any(
                |instruction| matches!(instruction, Instruction::Lookup(name) if *name == variable),
            )
    }
}

pub fn compile(source: &str) -> Result<Compiled, Error> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(error(format!("the template is longer than {MAX_SOURCE_BYTES} bytes")));
    }
    let source: Box<str> = drop_generation_tags(source).into_boxed_str();
    // SAFETY: the box keeps its address when it moves, lives as long as the instructions and is
    // never changed; nothing with this lifetime leaves `Compiled` except by reference.
    let text: &'static str = unsafe { std::mem::transmute::<&str, &'static str>(&source) };
    let whitespace =
        WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    let tree = parse(text, "chat template", Default::default(), whitespace)?;
    check_tree(&tree)?;
    let mut generator = CodeGenerator::new("chat template", text);
    generator.compile_stmt(&tree);
    let (instructions, blocks) = generator.finish();
    let blocks =
        blocks.into_iter().map(|(k, v)| Ok((k, rewrite(v)?))).collect::<Result<_, Error>>()?;
    Ok(Compiled { instructions: rewrite(instructions)?, blocks, _source: source })
}

/// transformers' `{% generation %}` blocks mark the assistant's text for training; when serving
/// they mean their contents. As `{% if true %}` they keep the white space rules of a block tag.
fn drop_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open + 2);
        out.push_str(before);
        let Some(close) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = tag[..close].trim_start_matches(['-', '+']).trim_end_matches(['-', '+']);
        let replacement = match inner.trim() {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match replacement {
            Some(words) => out.push_str(&tag[..close].replace(inner.trim(), words)),
            None => out.push_str(&tag[..close]),
        }
        rest = &tag[close..];
    }
    out + rest
}

/// Replaces instructions and moves the jump targets along.
fn rewrite(mut old: Instructions<'static>) -> Result<Instructions<'static>, Error> {
    let mut new = Instructions::new(old.name(), old.source());
    let mut moved = vec![];
    let mut index = 0;
    while let Some(slot) = old.get_mut(index) {
        let instruction = std::mem::replace(slot, Instruction::Swap);
        moved.push(0);
        for (i, replacement) in expand(instruction)?.into_iter().enumerate() {
            let at = match (old.get_span(index), old.get_line(index)) {
                (Some(span), _) => new.add_with_span(replacement, span),
                (None, Some(line)) => new.add_with_line(replacement, line as u16),
                (None, None) => new.add(replacement),
            };
            if i == 0 {
                moved[index as usize] = at;
            }
        }
        index += 1;
    }
    let end = new.add(Instruction::EmitRaw(""));
    moved.push(end);
    for at in 0..end {
        use Instruction::*;
        if let Some(
            Jump(to)
            | JumpIfFalse(to)
            | JumpIfFalseOrPop(to)
            | JumpIfTrueOrPop(to)
            | Iterate(to)
            | BuildMacro(_, to, _),
        ) = new.get_mut(at)
        {
            *to = moved[*to as usize];
        }
    }
    Ok(new)
}

fn expand(instruction: Instruction<'static>) -> Result<Vec<Instruction<'static>>, Error> {
    use minijinja::value::Value;
    use Instruction::*;
    let filter = |name: &'static str, args: u16| ApplyFilter(name, Some(args), !0);
    let counted = |name: &'static str, args: usize| match u16::try_from(args) {
        Ok(args) => Ok(vec![filter(name, args)]),
        Err(_) => Err(error("a list or dict in the template is too long")),
    };
    Ok(vec![match instruction {
        EmitRaw(text) => return Ok(vec![LoadConst(Value::from(text)), Emit]),
        Add => filter("+", 2),
        Mul => filter("*", 2),
        Rem => filter("%", 2),
        Div => filter("/", 2),
        IntDiv => filter("//", 2),
        StringConcat => filter("~", 2),
        Eq => filter("?==", 2),
        Ne => filter("?!=", 2),
        Lt => filter("?<", 2),
        Lte => filter("?<=", 2),
        Gt => filter("?>", 2),
        Gte => filter("?>=", 2),
        In => filter("?in", 2),
        // A link of `a < b < c`: only paid for here, the machine compares.
        CompareAndPreserve(op) => {
            return Ok(vec![filter("&", 2), UnpackList(2), CompareAndPreserve(op)]);
        }
        Slice => filter("[:]", 4),
        GetItem => filter("[]", 2),
        BuildMap(pairs) => return counted("{}", pairs.saturating_mul(2)),
        BuildList(Some(items)) => return counted("[,]", items),
        BuildList(None) => ApplyFilter("[,]", None, !0),
        UnpackList(n) => return Ok(vec![filter("#", 1), UnpackList(n)]),
        SetAttr(name) => {
            return Ok(vec![LoadConst(Value::from(name)), filter("=", 3), DiscardTop]);
        }
        // In Jinja2 an attribute of a dict is its method first: `schema.items` is never a key.
        GetAttr(name) => match methods::DICT_ATTRIBUTES.iter().find(|(n, _)| *n == name) {
            Some((_, attribute)) => filter(attribute, 1),
            None => GetAttr(name),
        },
        CallMethod(name, args) => match methods::NAMES.iter().find(|(method, _)| *method == name) {
            Some((_, filter)) => ApplyFilter(filter, args, !0),
            None => CallMethod(name, args),
        },
        other => other,
    }])
}
