//! A look at the parsed template before anything is generated from it.

use super::meter::error;
use minijinja::machinery::ast::{self, BinOpKind};
use minijinja::Error;

/// Refuses what the code generator cannot stomach, before a meter runs: it folds constant
/// expressions (`'x' * 100000000` would cost 100 MB a piece) and spends time quadratic in the
/// depth of an expression. Template authors need neither.
pub fn check_tree(tree: &ast::Stmt) -> Result<(), Error> {
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
