//! Words to a tree: the grammar of the specification.

use super::lexer::{self, Token, Word};
use super::{Constant, Element, Field, Id, Is, Node, RESERVED, Tree, macros};
use crate::report::{Found, Limit};

/// How deep expressions may stand within each other, and how long a chain of calls, fields or operators may be.
const MAX_DEPTH: usize = 250;
/// How long an expression may be, in characters.
const MAX_LENGTH: usize = 100_000;

pub(super) struct Parser {
    words: Vec<Token>,
    next: usize,
    depth: usize,
    nodes: Vec<Node>,
}

type Parsed<T> = Result<T, Found>;

pub(super) fn parse(expression: &str) -> Parsed<Tree> {
    let letters: Vec<char> = expression.chars().take(MAX_LENGTH + 1).collect();
    if letters.len() > MAX_LENGTH {
        let size = expression.chars().count();
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}");
        return Err(Found::limit(Limit::Length, message));
    }
    let mut parser = Parser { words: lexer::words(&letters)?, next: 0, depth: 0, nodes: Vec::new() };
    let root = parser.expression()?;
    parser.expect_end()?;
    Ok(Tree { nodes: parser.nodes, root })
}

/// The binary operators: how tightly each binds, and the name of its function.
fn binary(word: &Word) -> Option<(u8, &'static str)> {
    let symbol = match word {
        Word::Symbol(symbol) => symbol,
        Word::Name(name) if name == "in" => return Some((3, "@in")),
        _ => return None,
    };
    Some(match *symbol {
        "||" => (1, "_||_"),
        "&&" => (2, "_&&_"),
        "==" => (3, "_==_"),
        "!=" => (3, "_!=_"),
        "<" => (3, "_<_"),
        "<=" => (3, "_<=_"),
        ">" => (3, "_>_"),
        ">=" => (3, "_>=_"),
        "+" => (4, "_+_"),
        "-" => (4, "_-_"),
        "*" => (5, "_*_"),
        "/" => (5, "_/_"),
        "%" => (5, "_%_"),
        _ => return None,
    })
}

impl Parser {
    pub(super) fn add(&mut self, at: usize, is: Is) -> Id {
        self.nodes.push(Node { at, is });
        self.nodes.len() as Id - 1
    }

    pub(super) fn call(&mut self, at: usize, function: &str, arguments: Vec<Id>) -> Id {
        self.add(at, Is::Call { function: function.to_owned(), target: None, arguments })
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    fn peek(&self) -> &Word {
        self.words.get(self.next).map_or(&Word::End, |token| &token.word)
    }

    fn at(&self) -> usize {
        self.words.get(self.next).or(self.words.last()).map_or(0, |token| token.at)
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Word::Symbol(found) if *found == symbol)
    }

    /// Goes past a symbol, if it is there, and says where it was.
    fn take(&mut self, symbol: &str) -> Option<usize> {
        let at = self.is(symbol).then(|| self.at())?;
        self.next += 1;
        Some(at)
    }

    fn expect(&mut self, symbol: &str) -> Parsed<usize> {
        self.take(symbol).ok_or_else(|| self.unexpected(&format!("expecting '{symbol}'")))
    }

    fn expect_end(&self) -> Parsed<()> {
        if *self.peek() == Word::End { Ok(()) } else { Err(self.unexpected("expecting <EOF>")) }
    }

    fn unexpected(&self, expecting: &str) -> Found {
        let found = match self.peek() {
            Word::Name(name) => name.clone(),
            Word::Quoted(name) => format!("`{name}`"),
            Word::Symbol(symbol) => (*symbol).to_owned(),
            Word::End => "<EOF>".to_owned(),
            Word::String(text) => format!("'{text}'"),
            Word::Int | Word::Uint | Word::Double => "a number".to_owned(),
            Word::Bytes => "bytes".to_owned(),
        };
        Found::syntax(self.at(), format!("Syntax error: mismatched input '{found}' {expecting}"))
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        Ok(())
    }

    fn expression(&mut self) -> Parsed<Id> {
        self.deeper()?;
        let condition = self.operators()?;
        let Some(at) = self.take("?") else {
            self.depth -= 1;
            return Ok(condition);
        };
        let then = self.operators()?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        self.depth -= 1;
        Ok(self.call(at, "_?_:_", vec![condition, then, otherwise]))
    }

    /// Operands and the binary operators between them. Those that bind as tightly are taken from the left.
    fn operators(&mut self) -> Parsed<Id> {
        let mut operands = vec![self.unary()?];
        let mut waiting: Vec<(u8, &'static str, usize)> = Vec::new();
        let mut chains = [0_usize; 6];
        loop {
            let next = binary(self.peek());
            let binds = next.map_or(0, |(binds, _)| binds);
            while let Some(&(before, function, at)) = waiting.last().filter(|(before, ..)| *before >= binds) {
                waiting.pop();
                let (Some(right), Some(left)) = (operands.pop(), operands.pop()) else { break };
                operands.push(self.call(at, function, vec![left, right]));
                // The grammar takes all logical operators of a row at once, and the others one within the other.
                let chain = &mut chains[usize::from(before)];
                *chain += usize::from(before > 2);
                if *chain > MAX_DEPTH {
                    return Err(too_long());
                }
            }
            let Some((binds, function)) = next else { break };
            waiting.push((binds, function, self.at()));
            self.next += 1;
            operands.push(self.unary()?);
        }
        operands.pop().ok_or_else(|| self.unexpected("expecting an expression"))
    }

    /// A member with minus signs or exclamation marks before it; an even number of them is none.
    fn unary(&mut self) -> Parsed<Id> {
        let at = self.at();
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0_usize;
            while self.is(symbol) {
                if symbol == "-" && self.negates_a_number(count) {
                    break;
                }
                self.next += 1;
                count += 1;
            }
            if count > 0 {
                let of = self.member()?;
                return Ok(if count.is_multiple_of(2) { of } else { self.call(at, function, vec![of]) });
            }
        }
        self.member()
    }

    /// Whether this minus, after so many others, is that of a number: only a single one is.
    fn negates_a_number(&self, before: usize) -> bool {
        let next = self.words.get(self.next + 1).map(|token| &token.word);
        before == 0 && matches!(next, Some(Word::Int | Word::Double))
    }

    /// Something, and the fields, calls and indexes behind it.
    fn member(&mut self) -> Parsed<Id> {
        let mut of = self.primary()?;
        let mut chain = 0;
        loop {
            if let Some(at) = self.take(".") {
                let optional = self.take("?").is_some();
                let field_at = self.at();
                let field = match self.peek() {
                    Word::Name(name) if !is_keyword(name) => name.clone(),
                    Word::Quoted(_) => return Err(Found::syntax(field_at, "unsupported syntax: '`'")),
                    _ => return Err(self.unexpected("expecting IDENTIFIER")),
                };
                self.next += 1;
                if optional {
                    let field = self.add(field_at, Is::Constant(Constant::String(field)));
                    of = self.call(at, "_?._", vec![of, field]);
                } else if self.is("(") {
                    of = self.invocation(&field, Some(of))?;
                } else {
                    of = self.add(at, Is::Select { operand: of, field, test: false });
                }
            } else if let Some(at) = self.take("[") {
                let optional = self.take("?").is_some();
                let index = self.expression()?;
                self.expect("]")?;
                of = self.call(at, if optional { "_[?_]" } else { "_[_]" }, vec![of, index]);
            } else {
                return Ok(of);
            }
            chain += 1;
            if chain > MAX_DEPTH {
                return Err(too_long());
            }
        }
    }

    /// A function's arguments; macros are written out.
    fn invocation(&mut self, function: &str, target: Option<Id>) -> Parsed<Id> {
        let at = self.expect("(")?;
        let mut arguments = Vec::new();
        if !self.is(")") {
            arguments.push(self.expression()?);
            while self.take(",").is_some() {
                arguments.push(self.expression()?);
            }
        }
        self.expect(")")?;
        if let Some(written_out) = macros::expand(self, at, function, target, &arguments)? {
            return Ok(written_out);
        }
        Ok(self.add(at, Is::Call { function: function.to_owned(), target, arguments }))
    }

    fn constant(&mut self) -> Option<Constant> {
        let constant = match self.peek() {
            Word::Int => Constant::Int,
            Word::Uint => Constant::Uint,
            Word::Double => Constant::Double,
            Word::Bytes => Constant::Bytes,
            Word::String(text) => Constant::String(text.clone()),
            Word::Name(name) => match name.as_str() {
                "true" | "false" => Constant::Bool,
                "null" => Constant::Null,
                _ => return None,
            },
            _ => return None,
        };
        self.next += 1;
        Some(constant)
    }

    fn primary(&mut self) -> Parsed<Id> {
        let at = self.at();
        if self.is("-") && self.negates_a_number(0) {
            self.next += 1;
        }
        if let Some(constant) = self.constant() {
            return Ok(self.add(at, Is::Constant(constant)));
        }
        if self.take("(").is_some() {
            let of = self.expression()?;
            self.expect(")")?;
            return Ok(of);
        }
        if self.take("[").is_some() {
            let elements = self.elements("]")?;
            return Ok(self.add(at, Is::List(elements)));
        }
        if self.take("{").is_some() {
            return self.map(at);
        }
        let rooted = self.take(".").is_some();
        let Word::Name(name) = self.peek().clone() else {
            return Err(self.unexpected("expecting an expression"));
        };
        if is_keyword(&name) {
            return Err(self.unexpected("expecting an expression"));
        }
        self.next += 1;
        if self.is("(") {
            return self.invocation(&name, None);
        }
        if let Some(message) = self.message(&name)? {
            return Ok(message);
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(Found::syntax(at, format!("reserved identifier: {name}")));
        }
        let name = if rooted { format!(".{name}") } else { name };
        Ok(self.add(at, Is::Name(name)))
    }

    fn elements(&mut self, end: &str) -> Parsed<Vec<Element>> {
        let mut elements = Vec::new();
        while self.take(end).is_none() {
            let optional = self.take("?").is_some();
            elements.push(Element { of: self.expression()?, optional });
            if self.take(",").is_none() {
                self.expect(end)?;
                break;
            }
        }
        Ok(elements)
    }

    fn map(&mut self, at: usize) -> Parsed<Id> {
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, Element { of: self.expression()?, optional }));
            if self.take(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.add(at, Is::Map(entries)))
    }

    /// `a.b.C{field: value}`, if that is what follows the name.
    fn message(&mut self, first: &str) -> Parsed<Option<Id>> {
        let mut ahead = self.next;
        let mut name = first.to_owned();
        let word = |at: usize| self.words.get(at).map(|token| &token.word);
        while let (Some(Word::Symbol(".")), Some(Word::Name(part))) = (word(ahead), word(ahead + 1)) {
            name.push('.');
            name.push_str(part);
            ahead += 2;
        }
        if word(ahead) != Some(&Word::Symbol("{")) {
            return Ok(None);
        }
        self.next = ahead;
        let at = self.expect("{")?;
        let mut fields = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let Word::Name(name) = self.peek().clone() else {
                return Err(self.unexpected("expecting IDENTIFIER"));
            };
            self.next += 1;
            let at = self.expect(":")?;
            let value = Element { of: self.expression()?, optional };
            fields.push(Field { name, at, value });
            if self.take(",").is_none() {
                self.expect("}")?;
                break;
            }
        }
        Ok(Some(self.add(at, Is::Message { name, fields })))
    }
}

fn is_keyword(name: &str) -> bool {
    ["true", "false", "null", "in"].contains(&name)
}

fn too_deep() -> Found {
    Found::limit(Limit::Depth, format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

fn too_long() -> Found {
    Found::limit(Limit::Depth, "max recursion depth exceeded")
}
