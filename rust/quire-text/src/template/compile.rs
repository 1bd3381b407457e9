//! Source text to instructions for minijinja's machine, with the instructions whose cost depends on
//! their operands replaced by calls of our metered operators.

use super::meter::error;
use super::methods;
use minijinja::machinery::ast::{self, BinOpKind};
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

/// Refuses what the code generator cannot stomach, before a meter runs: it folds constant
/// expressions (`'x' * 100000000` would cost 100 MB a piece) and spends time quadratic in the
/// depth of an expression. Template authors need neither.
fn check_tree(tree: &ast::Stmt) -> Result<(), Error> {
    let mut visitor = TreeCheck { error: None, depth: 0 };
    visitor.statement(tree);
    visitor.error.map_or(Ok(()), Err)
}

struct TreeCheck {
    error: Option<Error>,
    depth: usize,
}

impl TreeCheck {
    const MAX_CONSTANT_BYTES: usize = 1 << 16;
    /// A sum of n terms has depth n, as has a chain of n `elif`s.
    const MAX_DEPTH: usize = 500;

    /// False where the visit must not go deeper.
    fn enter(&mut self) -> bool {
        self.depth += 1;
        if self.depth > Self::MAX_DEPTH {
            self.error = Some(error("the template is nested too deep"));
        }
        self.error.is_none()
    }

    fn statements(&mut self, list: &[ast::Stmt]) {
        list.iter().for_each(|stmt| self.statement(stmt));
    }

    fn statement(&mut self, stmt: &ast::Stmt) {
        if self.enter() {
            self.visit_statement(stmt);
        }
        self.depth -= 1;
    }

    fn visit_statement(&mut self, stmt: &ast::Stmt) {
        use ast::Stmt::*;
        match stmt {
            Template(s) => self.statements(&s.children),
            EmitExpr(s) => self.expr(&s.expr),
            ForLoop(s) => {
                self.expr(&s.iter);
                self.option(s.filter_expr.as_ref());
                self.statements(&s.body);
                self.statements(&s.else_body);
            }
            IfCond(s) => {
                self.expr(&s.expr);
                self.statements(&s.true_body);
                self.statements(&s.false_body);
            }
            WithBlock(s) => {
                s.assignments.iter().for_each(|(_, value)| self.expr(value));
                self.statements(&s.body);
            }
            Set(s) => self.expr(&s.expr),
            SetBlock(s) => {
                self.option(s.filter.as_ref());
                self.statements(&s.body);
            }
            AutoEscape(s) => {
                self.expr(&s.enabled);
                self.statements(&s.body);
            }
            FilterBlock(s) => {
                self.expr(&s.filter);
                self.statements(&s.body);
            }
            Block(s) => self.statements(&s.body),
            Macro(s) => self.macro_body(s),
            CallBlock(s) => {
                self.call(&s.call);
                self.macro_body(&s.macro_decl);
            }
            Do(s) => self.call(&s.call),
            // There are no other templates to load.
            Import(_) | FromImport(_) | Extends(_) | Include(_) => {
                self.error = Some(error("chat templates cannot load other templates"));
            }
            EmitRaw(_) | Continue(_) | Break(_) => {}
        }
    }

    fn macro_body(&mut self, s: &ast::Macro) {
        s.defaults.iter().for_each(|default| self.expr(default));
        self.statements(&s.body);
    }

    fn call(&mut self, call: &ast::Call) {
        self.expr(&call.expr);
        self.args(&call.args);
    }

    fn args(&mut self, args: &[ast::CallArg]) {
        use ast::CallArg::*;
        for arg in args {
            match arg {
                Pos(e) | Kwarg(_, e) | PosSplat(e) | KwargSplat(e) => self.expr(e),
            }
        }
    }

    fn option(&mut self, expr: Option<&ast::Expr>) {
        if let Some(expr) = expr {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &ast::Expr) {
        if self.enter() {
            self.visit_expr(expr);
            // Its parts are known to be shallow now, and small.
            let size = if self.error.is_none() { folded_size(expr) } else { None };
            if size.is_some_and(|bytes| bytes > Self::MAX_CONSTANT_BYTES) {
                self.error = Some(error("a constant expression is too large"));
            }
        }
        self.depth -= 1;
    }

    fn visit_expr(&mut self, expr: &ast::Expr) {
        use ast::Expr::*;
        match expr {
            Var(_) | Const(_) => {}
            Slice(e) => {
                self.expr(&e.expr);
                [&e.start, &e.stop, &e.step].into_iter().for_each(|e| self.option(e.as_ref()));
            }
            UnaryOp(e) => self.expr(&e.expr),
            BinOp(e) => {
                self.expr(&e.left);
                self.expr(&e.right);
            }
            Compare(e) => {
                self.expr(&e.expr);
                e.ops.iter().for_each(|op| self.expr(&op.expr));
            }
            IfExpr(e) => {
                self.expr(&e.test_expr);
                self.expr(&e.true_expr);
                self.option(e.false_expr.as_ref());
            }
            Filter(e) => {
                self.option(e.expr.as_ref());
                self.args(&e.args);
            }
            Test(e) => {
                self.expr(&e.expr);
                self.args(&e.args);
            }
            GetAttr(e) => self.expr(&e.expr),
            GetItem(e) => {
                self.expr(&e.expr);
                self.expr(&e.subscript_expr);
            }
            Call(e) => self.call(e),
            List(e) => e.items.iter().for_each(|item| self.expr(item)),
            Map(e) => e.keys.iter().chain(&e.values).for_each(|item| self.expr(item)),
        }
    }
}

/// An upper bound for the bytes that folding `expr` makes; None where it is not folded.
fn folded_size(expr: &ast::Expr) -> Option<usize> {
    match expr {
        ast::Expr::Const(c) => Some(c.value.as_str().map_or(16, str::len)),
        ast::Expr::UnaryOp(e) => folded_size(&e.expr),
        ast::Expr::List(e) => e.items.iter().map(folded_size).sum(),
        ast::Expr::Map(e) => e.keys.iter().chain(&e.values).map(folded_size).sum(),
        ast::Expr::BinOp(e) => {
            let (left, right) = (folded_size(&e.left)?, folded_size(&e.right)?);
            Some(match (e.op, is_number(&e.left), is_number(&e.right)) {
                (_, true, true) => 16,
                (BinOpKind::Mul, true, false) => right.saturating_mul(times(&e.left)),
                (BinOpKind::Mul, false, true) => left.saturating_mul(times(&e.right)),
                _ => left.saturating_add(right),
            })
        }
        _ => None,
    }
}

fn is_number(expr: &ast::Expr) -> bool {
    match expr {
        ast::Expr::Const(c) => c.value.is_number(),
        ast::Expr::UnaryOp(e) => is_number(&e.expr),
        ast::Expr::BinOp(e) => is_number(&e.left) && is_number(&e.right),
        _ => false,
    }
}

fn times(expr: &ast::Expr) -> usize {
    expr.as_const().and_then(|n| n.as_usize()).unwrap_or(1).max(1)
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
        match new.get_mut(at) {
            Some(
                Jump(to)
                | JumpIfFalse(to)
                | JumpIfFalseOrPop(to)
                | JumpIfTrueOrPop(to)
                | Iterate(to)
                | BuildMacro(_, to, _),
            ) => *to = moved[*to as usize],
            _ => {}
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
